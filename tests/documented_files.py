"""Holds the files that something wrote against what the reference says of them."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from docs.file_formats import SECTIONS, FileFormat

# Not ours to describe: logs, models in Hugging Face layout, tensors by the model's own names, what sinks keep, and what
# a process that was killed had not finished writing.
_OTHERS = re.compile(
    r"(^|/)(logs|gepa|weights|adapters|tensorboard|wandb|sinks)/|^(broadcasts|untied_model)/|"
    r"^(config\.json|lock|system_prompt\.txt)$|\.(beat|log|offset)$|^checkpoints/.*\.safetensors$|"
    r"^\.|/\.|\.aside$|^status/\w+\.\d+$"
)


def assert_documented(folder: Path, *titles: str) -> set[str]:
    """Fail for a file below `folder` that these sections do not name, or whose keys are others than they say.

    Returns:
        The paths of the formats that were met.
    """
    formats = [each for section in SECTIONS if section.title in titles for each in section.formats]
    assert formats, f"the reference has no sections {titles}"
    met = set()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if _OTHERS.search(name):
            continue
        fitting = [each for each in formats if _fits(each.path, name)]
        assert fitting, f"{name} is not in docs/file_formats.py"
        # Of several patterns the first says most; of several models under one pattern one has to fit.
        same = [each for each in fitting if each.path == fitting[0].path]
        problems = [_problem(each, path) for each in same]
        assert None in problems, f"{name} is not what docs/reference/files.md says: {problems}"
        met.add(fitting[0].path)
    return met


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), name) is not None


def _problem(each: FileFormat, path: Path) -> str | None:
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        found, known = set(load_file(path)), set(each.model.model_fields)
        return None if found == known else f"{found ^ known}"
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    try:
        for text in texts:
            each.model.model_validate_json(text)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    return None
