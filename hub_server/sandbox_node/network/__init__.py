"""What a sandbox may reach, and how its own ports are reached."""
