"""What the commands share that work on a node of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

NodeDataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Of the node; sandboxes in the data folder of the hub."),
]


def node_data_dir(given: Path | None) -> Path:
    """Return the data folder of the node that is meant: that of the one beside the hub, unless another is given."""
    from prime_cli.commands.hub_options import data_dir_of

    return given.expanduser().absolute() if given else data_dir_of(None) / "sandboxes"


@contextlib.contextmanager
def node_words() -> Iterator[None]:
    """Say what goes wrong on a node as other errors are said, also that its packages are missing.

    Raises:
        PrimeError: something went wrong.
    """
    from hub_server.sandbox_node.errors import SandboxError
    from prime_cli.core.errors import PrimeError

    try:
        yield
    except SandboxError as error:
        raise PrimeError(error.detail, error.hint) from None
    except ModuleNotFoundError as error:
        raise PrimeError(f"a node needs the package {error.name}", hint="pip install 'prime-lab[hub]'") from None
    except PermissionError as error:
        hint = "run it as the user of the node"
        raise PrimeError(f"cannot use {error.filename}: {error.strerror}", hint) from None
