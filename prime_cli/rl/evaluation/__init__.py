"""Evaluations while a run goes on: what is due, which rollouts run beside those of the training, what came of them."""
