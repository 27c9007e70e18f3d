"""Evaluations that were run elsewhere and pushed here: their settings, their figures and every rollout."""
