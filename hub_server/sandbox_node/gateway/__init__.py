"""What clients of a sandbox talk to: commands, files and ports, over HTTP."""
