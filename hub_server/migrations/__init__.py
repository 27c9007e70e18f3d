"""Revisions of the tables, applied at start."""
