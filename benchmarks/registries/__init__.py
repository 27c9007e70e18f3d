"""Package registries that `benchmarks/registry.py` measures, and how; with the hubs and wheels of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
