"""Backups: the database as portable rows, the blobs that it names, the keys, and a manifest with the hash of each."""
