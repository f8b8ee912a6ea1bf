"""Claims about a run, derived again from its ledger alone."""
