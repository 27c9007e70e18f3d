"""Running a hub: its log, its metrics, whether it is ready, and the address that others know it by."""
