"""The Textual application for looking at runs and rollouts."""
