"""A frozen policy on held-out tasks: judges, measurements, intervals."""
