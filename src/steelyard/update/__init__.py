"""Weights: loading, batching, the optimizer, the update, hashes."""
