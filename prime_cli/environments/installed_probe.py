"""Run by path with the workspace's interpreter: tells what is installed there, as JSON on stdout.

Arguments: names of distributions (normalised), or none for every environment. Standard library only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def describe(distribution: importlib.metadata.Distribution, name: str) -> dict[str, Any] | None:
    """Return what there is to know of one distribution; None when it holds no environment."""
    module = name.replace("-", "_")
    files = [str(file) for file in distribution.files or []]
    direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
    editable = bool(direct_url.get("dir_info", {}).get("editable"))
    source = next((file for file in (f"{module}.py", f"{module}/__init__.py") if file in files), None)
    pyproject = next((file for file in (f"{module}/pyproject.toml", "pyproject.toml") if file in files), None)
    if source is not None:
        path = Path(str(distribution.locate_file(source)))
    elif editable:
        folder = Path(unquote(urlsplit(direct_url["url"]).path))
        path = next((p for p in (folder / f"{module}.py", folder / module / "__init__.py") if p.is_file()), folder)
    else:
        return None
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return {
        "name": name,
        "version": distribution.version,
        "direct_url": direct_url,
        "editable": editable,
        "pyproject": str(distribution.locate_file(pyproject)) if pyproject else None,
        "is_environment": "load_environment" in text and name != "verifiers",
    }


def main(wanted: list[str]) -> None:
    """Print `{has_pip, present, distributions}`; `present` are the names found, environments or not."""
    found: dict[str, Any] = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name and name not in found and (not wanted or name in wanted):
            found[name] = describe(distribution, name)
    described = [entry for entry in found.values() if entry and (wanted or entry["is_environment"])]
    answer = {
        "has_pip": importlib.util.find_spec("pip") is not None,
        "present": list(found),
        "distributions": described,
    }
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
