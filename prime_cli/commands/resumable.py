"""The option `--resume` of commands that train."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Resume = Annotated[
    str | None,
    typer.Option(
        metavar="[STEP | RUN[@STEP]]",
        help="Go on with this run from its last checkpoint, or from STEP; or begin a new run where RUN was.",
    ),
]


class ResumableCommand(TyperCommand):
    """A command whose `--resume` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `latest` behind a `--resume` that has no value of its own."""
        words: list[str] = []
        for word, following in itertools.zip_longest(args, args[1:], fillvalue=""):
            words.append(word)
            if word == "--resume" and (
                following in ("", "@") or following.startswith("-") or following.endswith(".toml")
            ):
                words.append("latest")
        return super().parse_args(ctx, words)
