"""Examines a workspace and the machine that it is on, and says of each thing whether it will do."""
