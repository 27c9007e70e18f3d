"""The privileged part of a node, a process of its own: mounts, cgroups, uids, and the start of sandboxes."""
