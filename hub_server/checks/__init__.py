"""Checks of published versions: install, import, load and one rollout, in processes that are shut off from the hub."""
