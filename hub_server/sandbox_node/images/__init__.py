"""The operator's store of root file systems, by name and tag."""
