"""The trainer: blind to the algorithm, it turns weighted tokens into a gradient step."""
