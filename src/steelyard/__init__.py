"""Steelyard post-trains language models with verifiable rewards and accounts for every update it makes."""
