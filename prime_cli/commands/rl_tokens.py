"""`prime rl tokens`: what the trainer saw of every token of a step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prime_cli.commands.rl_runs import Folder, Run

if TYPE_CHECKING:
    from prime_cli.rl.tokens import TokenRow

_RUNS = Path("outputs/rl")


def tokens(
    run: Run,
    step: Annotated[int, typer.Argument(metavar="STEP", min=1, help="A step whose tokens were exported.")],
    sequence: Annotated[
        int | None, typer.Option("--sequence", "-s", min=0, help="Its number in the batch; the worst when left out.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=0, help="How many tokens in the table, the worst first.")] = 15,
    folder: Folder = _RUNS,
) -> None:
    """Show a sequence that was trained on, token by token: log-probabilities of server and trainer, and what they make.

    Needs `trainer.token_export_interval` in the run's configuration. Colours: dim is not trained on; green, yellow and
    red say how far server and trainer are apart; white on red was dropped; cyan is learnt as a demonstration. The worst
    sequence is the one with the greatest mean mismatch.

    JSON output (--output json): {sequences: how many, sequence: the record as exported, texts: [of each token]}
    """
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.rl.runs import open_run, read_run_config
    from prime_cli.rl.tokens import exported_sequences, mean_mismatch, rows_of, texts_of

    found = open_run(run, folder)
    records = exported_sequences(found, step)
    if sequence is None and records:
        chosen = max(records, key=mean_mismatch)
    else:
        matching = [record for record in records if record["sequence"] == sequence]
        if not matching:
            raise BadInput(f"step {step} has no sequence {sequence}", hint=f"it has {len(records)}, from 0 on")
        chosen = matching[0]
    texts = texts_of(chosen["token_ids"], Path(str(read_run_config(found).get("model"))))
    if out.mode().json:
        out.print_json({"sequences": len(records), "sequence": chosen, "texts": texts})
        return
    rows = rows_of(chosen, texts)
    origin = ", ".join(f"{key} {chosen[key]}" for key in ("environment", "group", "example") if key in chosen)
    title = f"step {step}, sequence {chosen['sequence']} of {len(records)}" + (f" ({origin})" if origin else "")
    typer.echo(f"{title}: {len(rows)} tokens, mean mismatch {mean_mismatch(chosen):.1e}\n")
    _print_text(rows)
    worst = sorted((row for row in rows if row.counted), key=lambda row: row.badness, reverse=True)[:num]
    if worst:
        _print_table(sorted(worst, key=lambda row: row.position))


def _print_text(rows: list[TokenRow]) -> None:
    from rich.text import Text

    from prime_cli.core import output as out

    out.stdout_console().print(Text.assemble(*((_printable(row.text), row.style) for row in rows)), soft_wrap=True)
    typer.echo("")


def _printable(text: str) -> str:
    """Return a token's text without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _print_table(rows: list[TokenRow]) -> None:
    from prime_cli.core import output as out

    columns = ("place", "token", "server", "trainer", "ratio", "mismatch", "entropy", "advantage", "")
    out.print_table(
        columns,
        [
            (row.position, repr(row.text), _number(row.inference_logprob), _number(row.trainer_logprob),
             _number(row.ratio), _number(row.mismatch_kl), _number(row.entropy), _number(row.advantage),
             "dropped" if row.dropped else "")
            for row in rows
        ],
    )  # fmt: skip


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
