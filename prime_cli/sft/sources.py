"""Reads the sources of demonstrations: JSON lines, Parquet, datasets, and environments with their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.errors import ConfigError
from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers
from prime_cli.environments.target import EnvironmentTarget, find_target
from prime_cli.sft.conversations import COLUMNS, EXPECTED, Conversation, conversation_of_example, conversation_of_row
from prime_cli.sft.data_config import SourceConfig

_JSON_LINES = (".jsonl", ".ndjson")

Note = Callable[[str], None]


def load_conversations(
    source: SourceConfig, *, log_directory: Path, note: Note = lambda text: None
) -> list[Conversation]:
    """Return the conversations of a source, in its order.

    Raises:
        ConfigError: it is missing, cannot be read or is empty, or a row of it is no demonstration; names the row.
        PrimeError: the environment does not load, or its examples carry nothing to learn from.
    """
    if source.path is not None:
        rows = _file_rows(source.path)
    elif source.name is not None:
        rows = _dataset_rows(source)
    else:
        return _of_environment(source, log_directory, note)
    conversations = [conversation_of_row(row, where) for row, where in rows]
    if not conversations:
        raise ConfigError(f"{source.label} holds no demonstrations")
    return conversations


def _of_environment(source: SourceConfig, log_directory: Path, note: Note) -> list[Conversation]:
    assert source.env is not None, "a source is one of three"
    rows = asyncio.run(_environment_rows(find_target(source.env, note), source.args, log_directory))
    known = [conversation for row in rows if (conversation := conversation_of_example(row)) is not None]
    if not known:
        raise ConfigError(
            f"the training examples of {source.env} carry no `answer` and no `demonstration` to learn from",
            hint="write demonstrations to a JSONL file and set data.path",
        )
    return known


async def _environment_rows(
    target: EnvironmentTarget, args: dict[str, Any], log_directory: Path
) -> list[dict[str, Any]]:
    workers = EnvironmentWorkers(
        EnvironmentSpec(target.identity.name, args),
        python=target.python,
        log_directory=log_directory,
        search_path=target.search_path,
    )
    try:
        await workers.start()
        return await workers.examples("train")
    finally:
        await workers.close()


Rows = Iterable[tuple[Any, str]]
"""Rows, each with where it stands, for messages."""


def _file_rows(path: Path) -> Rows:
    if not path.exists():
        raise ConfigError(f"no such data file: {path}", hint="data.path names a .jsonl or .parquet file")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", hint="data.path names a file; data.name takes the folder of a dataset")
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    if path.suffix not in _JSON_LINES:
        raise ConfigError(
            f"{path} is neither .jsonl nor .parquet", hint="write one JSON object on each line of a .jsonl"
        )
    return _json_rows(path)


def _json_rows(path: Path) -> Iterator[tuple[Any, str]]:
    try:
        # Only \n ends a line: JSON may hold the other separators of Unicode inside a text.
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ConfigError(f"{path}:{number} is not JSON: {error}", hint=EXPECTED) from None
                yield row, f"{path}:{number}"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="data.path names a JSONL file, in UTF-8") from None


def _parquet_rows(path: Path) -> Iterator[tuple[Any, str]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = _wanted(file.schema_arrow.names, str(path))
            number = 0
            for batch in file.iter_batches(columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield row, f"{path}, row {number}"
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{path} cannot be read: {_first_line(error)}", hint="is it a Parquet file?") from None


def _dataset_rows(source: SourceConfig) -> Iterator[tuple[Any, str]]:
    dataset = _open_dataset(source)
    dataset = dataset.select_columns(_wanted(dataset.column_names, source.label))
    for number, row in enumerate(dataset, 1):
        yield row, f"{source.label}, row {number}"


def _open_dataset(source: SourceConfig) -> Any:
    """Open a folder that `save_to_disk` wrote, or anything that `load_dataset` takes."""
    import datasets

    assert source.name is not None, "this source is a dataset"
    datasets.disable_progress_bars()
    folder = Path(source.name)
    hint = "data.name is the folder of a dataset, or its name on the hub; data.split and data.subset choose a part"
    try:
        if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
            dataset = datasets.load_from_disk(str(folder))
            if isinstance(dataset, datasets.DatasetDict):
                if source.split not in dataset:
                    there = ", ".join(sorted(map(str, dataset)))
                    raise ConfigError(f"{source.name} has no split {source.split!r}", hint=f"it has {there}")
                dataset = dataset[source.split]
        else:
            dataset = datasets.load_dataset(source.name, source.subset, split=source.split)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"the dataset {source.label} cannot be loaded: {_first_line(error)}", hint=hint) from error
    return dataset


def _wanted(columns: Sequence[str], where: str) -> list[str]:
    """Return the columns to read.

    Raises:
        ConfigError: a demonstration needs others.
    """
    if "messages" not in columns and not {"prompt", "completion"} <= set(columns):
        raise ConfigError(f"{where} has the columns {', '.join(columns) or '(none)'}", hint=EXPECTED)
    return [name for name in columns if name in COLUMNS]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
