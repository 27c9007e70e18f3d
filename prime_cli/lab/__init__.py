"""A workspace on this machine: set one up, and watch the whole loop run in one."""
