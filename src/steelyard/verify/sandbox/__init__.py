"""Runs programs that a model wrote, behind walls; see docs/verification.md."""

from steelyard.verify.sandbox.pool import Sandbox, probe
from steelyard.verify.sandbox.records import InputOutcome, Limits, ProgramJob, ProgramRun, Wall

__all__ = ["InputOutcome", "Limits", "ProgramJob", "ProgramRun", "Sandbox", "Wall", "probe"]
