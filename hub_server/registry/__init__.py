"""Environments and their versions: upload, publish, look up, install."""
