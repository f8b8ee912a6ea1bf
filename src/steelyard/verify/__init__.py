"""From a completion to a reward, safely; see docs/verification.md."""
