"""What a sandbox may reach, and how it is reached."""
