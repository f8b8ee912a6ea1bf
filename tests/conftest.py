"""Settings that every test shares."""

from hypothesis import settings

# Derandomised: a push fails for what it changed, not for the examples of the day.
settings.register_profile("steelyard", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("steelyard")
