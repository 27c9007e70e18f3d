"""Reinforcement learning: launcher, orchestrator, trainer, inference, and the run directory between them."""
