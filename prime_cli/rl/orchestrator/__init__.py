"""The orchestrator: opens groups of rollouts, turns finished ones into samples, cuts batches, relays weights."""
