"""Sandboxes as the hub knows them: whose they are, on which node they run, and what became of them."""
