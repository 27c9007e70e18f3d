"""The parts of `benchmarks/rl_vs_peers.py`: the recipe that all trainers follow, and one module for each of them."""
