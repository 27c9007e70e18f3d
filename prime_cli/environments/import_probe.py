"""Run by path with the workspace's interpreter: imports one environment and says whether it has `load_environment`.

Arguments: the project's folder, the module, the file for the verdict (JSON). Standard library only: prime_cli need
not be installed where this runs.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def probe(folder: Path, module: str) -> dict[str, Any]:
    """Import `module` from `folder`; return `{has_loader}` or `{error, frames}`."""
    sys.path[0] = str(folder)
    sys.path.insert(1, str(folder / "src"))
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever the environment raises is the verdict
        frames = [
            {"file": frame.filename, "line": frame.lineno, "name": frame.name, "code": frame.line}
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename != __file__ and not frame.filename.startswith("<frozen")
        ]
        return {"error": "".join(traceback.format_exception_only(error)).strip(), "frames": frames}
    return {"has_loader": callable(getattr(imported, "load_environment", None))}


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(probe(Path(sys.argv[1]), sys.argv[2])))
