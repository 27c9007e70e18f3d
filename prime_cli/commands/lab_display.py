"""How the findings of `prime lab doctor` are shown."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prime_cli.lab.doctor.finding import Finding

_STYLES = {"ok": "green", "warning": "yellow", "fails": "bold red"}


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each finding with what to do below it; in plain mode tab-separated, the hint last."""
    from rich.text import Text

    from prime_cli.core import output as out

    if out.mode().plain:
        for finding in findings:
            sys.stdout.write("\t".join((finding.level, finding.check, finding.message, finding.hint or "")) + "\n")
        return
    console = out.stdout_console()
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Text(f"{finding.level:<8} ", style=_STYLES[finding.level])
        console.print(line + Text(f"{finding.check:<{width}}  {finding.message}", style=""))
        if finding.hint:
            console.print(Text(" " * (width + 11) + finding.hint, style="cyan"), soft_wrap=True)
    counts = Counter(finding.level for finding in findings)
    console.print(f"{counts['ok']} ok, {counts['warning']} warnings, {counts['fails']} fail")
