"""How strong is this suite? Wrong programs that it pays in full, and a stronger version of it; see docs/suite-strength.md."""

from steelyard.audit.strength.measure import measure_strength
from steelyard.audit.strength.programs import LIMITS
from steelyard.audit.strength.records import Report
from steelyard.audit.strength.subject import Subject, find_subject

__all__ = ["LIMITS", "Report", "Subject", "find_subject", "measure_strength"]
