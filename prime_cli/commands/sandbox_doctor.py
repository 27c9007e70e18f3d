"""`prime sandbox doctor`: what sandboxes this machine can give, and how to get better ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from prime_cli.commands.sandbox_options import node_words

if TYPE_CHECKING:
    from hub_server.sandbox_node.doctor import Examination, Offer


def register(app: typer.Typer) -> None:
    """Add the command to `prime sandbox`."""
    app.command("doctor")(doctor)


def doctor() -> None:
    """Find out what sandboxes this machine can give, by making some, and how to get better ones.

    Exit code 1 when it can give none of level `container`, which a node needs unless it is told otherwise.

    JSON output (--output json): {level, backend, offers: [{backend, level, detail, fix, create_ms}], findings:
    [{name, state, detail, fix}]}; level and backend are those that a node takes, or null
    """
    from dataclasses import asdict

    from prime_cli.core import output as out

    with node_words():
        from hub_server.sandbox_node.doctor import examine
        from hub_server.sandbox_node.specification import Level

        found = examine()
        best = found.best
        is_enough = best is not None and (best.level or Level.NONE) >= Level.CONTAINER
    if out.mode().json:
        taken = {"level": best.level if best else None, "backend": best.backend if best else None}
        offers, findings = (list(map(asdict, part)) for part in (found.offers, found.findings))
        out.print_json({**taken, "offers": offers, "findings": findings})
    else:
        _print(found, best, is_enough)
    if not is_enough:
        raise typer.Exit(1)


def _print(found: Examination, best: Offer | None, is_enough: bool) -> None:
    from rich.markup import escape

    from prime_cli.core import output as out

    out.print_table(
        ("this machine", "", ""), [(finding.name, finding.state, finding.detail) for finding in found.findings]
    )
    out.print_table(
        ("backend", "level", "made in", ""),
        [(offer.backend, offer.level or "-", _taken(offer), offer.detail) for offer in found.offers],
    )
    named = [(finding.name, finding.fix) for finding in found.findings]
    for name, fix in [*named, *((offer.backend, offer.fix) for offer in found.offers)]:
        if fix:
            out.note(f"[cyan]{name}:[/cyan] {escape(fix)}")
    if best is None:
        out.warn("this machine gives no sandboxes")
    elif is_enough:
        out.success(f"a node makes sandboxes of level {best.level} here, by {best.backend}")
    else:
        out.warn(f"a node starts here with --min-level {best.level} only, by {best.backend}")


def _taken(offer: Offer) -> str:
    return "" if offer.create_ms is None else f"{offer.create_ms:.0f} ms"
