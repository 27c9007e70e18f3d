"""The agent: process 1 of a sandbox, which starts commands, moves files and carries connections for the node."""
