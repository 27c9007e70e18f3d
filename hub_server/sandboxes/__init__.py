"""The sandboxes of a hub's users: their rows and rules, the nodes that run them, and the platform API."""
