"""What runs inside the confinement of a check, beside the environment: the standard library and verifiers only."""
