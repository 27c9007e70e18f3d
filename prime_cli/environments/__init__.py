"""Environments as packages: scaffold, build, publish, install, and the one door through which they run."""
