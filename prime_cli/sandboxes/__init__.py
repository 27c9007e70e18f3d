"""Sandboxes from the user's side: asking a hub for them, running commands in them, moving files."""
