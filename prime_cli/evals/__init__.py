"""Evaluations: configuration, the run itself, the results on disk, statistics."""
