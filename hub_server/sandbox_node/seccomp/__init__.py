"""Which system calls a sandbox may make."""
