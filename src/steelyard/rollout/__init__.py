"""Sampling answers: keyed draws, prompts, the embedded engine."""
