"""The hub beside pypiserver and devpi-server, in one run on this machine.

    python benchmarks/registry.py [--json] [--check] [--files N] [--wheels N] [--minutes N] [--repeats N]

Goal: the JSON page of a project with 2,000 files in 10 ms (median) or less, and ahead of both others on every row that
they have, in the median of one client and in what four clients get per second. The others are installed into a
temporary environment from the package index that pip is set to. Each server runs alone while it is measured.

What stands beside each other is not the same work: our uploads are checked to their last byte and flushed to disk when
they are answered, pypiserver does neither, devpi-server flushes its database. The row `one flushed file` says what that
costs on this disk. Memory is told without a goal. devpi-server takes the longer for a wheel the more there are: after
--minutes it is measured with what it has then, which is to its advantage, and the table says how much that is. On two
quiet cores all of it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from registries import measures
from registries.measures import JSON_TYPE, UV_ACCEPTS, Row, Wheel
from registries.servers import Server, all_servers, install_tools
from running_hub import make_wheel

GOAL_PAGE_MS = 10.0
PAGE_GOAL = "page of many files, JSON"
VERSIONS_PER_PROJECT = 10
Figures = dict[str, Row]


@dataclass(frozen=True)
class Size:
    """How many files the large project of a server had, how many wheels its large index, and its memory with these."""

    files: int
    wheels: int
    memory_mib: float


def measure_many_files(server: Server, repeats: int, uv: Path) -> Figures:
    """Measure with a project of many files, and an environment with one dependency to install."""
    needs = "Metadata-Version: 2.1\nName: an-environment\nVersion: 0.1.0\nRequires-Dist: many-files\n"
    measures.upload(server, make_wheel("an-environment", "0.1.0", metadata=needs))
    page = f"{server.simple}many-files/"
    rows = {
        "page of many files, as uv asks": measures.time_page(page, UV_ACCEPTS, "gzip", repeats),
        "page of many files, HTML": measures.time_page(page, "text/html", "identity", repeats),
        "upload of a new project": measures.time_uploads(server, "sent", repeats),
        "upload to the project of many files": measures.time_versions(server, "many-files", repeats),
        "install with one dependency": measures.time_install(server, "an-environment", uv, max(3, repeats // 20)),
    }
    if server.name != "pypiserver":  # it has no JSON
        rows[PAGE_GOAL] = measures.time_page(page, JSON_TYPE, "identity", repeats)
    return rows


def measure_many_wheels(server: Server, repeats: int) -> Figures:
    """Measure on an index of many projects, which is filled before."""
    rows = {
        "whole index, as uv asks": measures.time_page(server.simple, UV_ACCEPTS, "gzip", repeats),
        "page of one project": measures.time_page(f"{server.simple}project-7/", UV_ACCEPTS, "gzip", repeats),
        "one more wheel": measures.time_uploads(server, "one-more", repeats),
    }
    if server.search:
        rows["search"] = measures.time_page(f"{server.search}project-77", "application/json", "identity", repeats)
    return rows


def many_files(count: int) -> Iterator[Wheel]:
    """Yield wheels of one project, each of another version."""
    return (make_wheel("many-files", f"0.{number}.0") for number in range(count))


def many_wheels(count: int) -> Iterator[Wheel]:
    """Yield wheels of many projects, ten versions each."""
    for number in range(count):
        project, version = divmod(number, VERSIONS_PER_PROJECT)
        yield make_wheel(f"project-{project}", f"0.{version}.0")


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Figures], dict[str, Size]]:
    """Return the rows of every server, and how large it was."""
    tools = install_tools(folder / "tools")
    starts = all_servers(tools)
    figures: dict[str, Figures] = {}
    sizes: dict[str, Size] = {}
    for name, start in starts.items():
        seconds = 60 * options.minutes if name == "devpi-server" else 3600
        with start(_new(folder / name / "files")) as server:
            files = measures.fill(server, many_files(options.files), seconds)
            _tell(f"{name}: a project with {files} files")
            figures[name] = measure_many_files(server, options.repeats, tools / "uv")
        with start(_new(folder / name / "wheels")) as server:
            wheels = measures.fill(server, many_wheels(options.wheels), seconds)
            _tell(f"{name}: {wheels} wheels")
            figures[name] |= measure_many_wheels(server, options.repeats)
            sizes[name] = Size(files, wheels, server.memory_mib)
    return figures, sizes


def missed(figures: dict[str, Figures]) -> list[str]:
    """Return in words what fell short of the goals."""
    ours, short = figures["prime hub"], []
    if ours[PAGE_GOAL].p50_ms > GOAL_PAGE_MS:
        short.append(f"the JSON page takes {ours[PAGE_GOAL].p50_ms:.1f} ms, goal {GOAL_PAGE_MS:.0f} ms")
    for name, rows in figures.items():
        short += [
            f"{row}: {_words(ours[row])}, {name} {_words(theirs)}"
            for row, theirs in rows.items()
            if name != "prime hub" and not ours[row].is_ahead_of(theirs)
        ]
    return short


def _words(row: Row) -> str:
    return f"{row.p50_ms:.2f} ms" + (f" and {row.per_s:.1f} /s" if row.per_s is not None else "")


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print(figures: dict[str, Figures], sizes: dict[str, Size], flush: Row) -> None:
    print(f"{'':38}" + "".join(f"{name:>26}" for name in figures))
    for row in figures["prime hub"]:
        cells = (_words(rows[row]) if row in rows else "-" for rows in figures.values())
        print(f"{row:38}" + "".join(f"{cell:>26}" for cell in cells))
    print(f"{'files of the project':38}" + "".join(f"{sizes[name].files:>26}" for name in figures))
    print(f"{'wheels of the index':38}" + "".join(f"{sizes[name].wheels:>26}" for name in figures))
    print(f"{'memory with these wheels':38}" + "".join(f"{sizes[name].memory_mib:>22.0f} MiB" for name in figures))
    print(f"{'one flushed file on this disk':38}{_words(flush):>26}")


def main() -> None:
    """Print the figures of all servers; with --check exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--files", type=int, default=2000, help="files of the large project")
    parser.add_argument("--wheels", type=int, default=25_000, help="wheels of the large index, ten for each project")
    parser.add_argument("--minutes", type=float, default=1.5, help="how long filling devpi-server may take, twice")
    parser.add_argument("--repeats", type=int, default=100, help="requests behind each median")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PRIME_HOME"] = folder
        flush = measures.time_flush(options.repeats)
        figures, sizes = measure(options, Path(folder))
    short = missed(figures)
    if options.json:
        rows = {name: {row: asdict(value) for row, value in found.items()} for name, found in figures.items()}
        shown = {name: asdict(size) for name, size in sizes.items()}
        print(json.dumps({"rows": rows, "sizes": shown, "flush": asdict(flush), "missed": short}))
    else:
        _print(figures, sizes, flush)
        print("\n".join(f"missed: {words}" for words in short) or "met")
    if options.check and short:
        sys.exit(1)


if __name__ == "__main__":
    main()
