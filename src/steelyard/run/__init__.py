"""Where the stages meet: training, warm-up, and what people are shown of it."""
