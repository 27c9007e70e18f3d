"""Secrets and variables: taken once, encrypted at rest, and handed to the jobs of an environment only."""
