"""`prime lab`: set up a workspace, examine it, keep it up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prime_cli.commands.lab_display import print_findings
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.lab.setup import Workspace
    from prime_cli.lab.sync import SyncReport

app = new_group("Set up a workspace for environments, evals and training; alone it opens the viewer on all of it.")

_NEXT = (
    ("prime env init my-task", "write an environment"),
    ("prime env init reverse-text --template reverse-text", "or take one that a tiny model learns"),
    ("prime eval run reverse-text -m MODEL", "measure one: endpoint, URL or folder"),
    ("prime rl run configs/rl/reverse-text.toml", "train"),
    ("prime lab doctor", "see what is missing here"),
)

Agents = Annotated[
    str | None,
    typer.Option("--agents", "--agent", metavar="A,B|all|none", help="Coding agents to lay out skills for."),
]
WorkspacePath = Annotated[Path, typer.Option("--path", help="The folder of the workspace.")]


@app.callback(invoke_without_command=True, no_args_is_help=False)
def everything(ctx: typer.Context) -> None:
    """Set up a workspace for environments, evals and training; alone it opens the viewer on all that is in it."""
    if ctx.invoked_subcommand is not None:
        return
    from prime_cli.core import output as out

    if not out.can_open_viewer():
        typer.echo(ctx.get_help())
        return
    from prime_cli.viewer.app import view_workspace

    view_workspace().run()


@app.command()
def setup(
    path: Annotated[
        Path, typer.Option("--path", help="The folder of the workspace; made if it is not there.")
    ] = Path(),
    agents: Agents = None,
    skip_agents_md: Annotated[
        bool, typer.Option("--skip-agents-md", help="Leave out AGENTS.md, CLAUDE.md and environments/AGENTS.md.")
    ] = False,
    skip_install: Annotated[
        bool, typer.Option("--skip-install", help="Install nothing, not even verifiers where it is missing.")
    ] = False,
    prime_rl: Annotated[
        bool, typer.Option("--prime-rl", help="Also set up what training needs, and prove that it works.")
    ] = False,
    vllm: Annotated[
        bool, typer.Option("--vllm", help="With --prime-rl: vLLM's CPU build where there is no GPU (3.5 GB).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --prime-rl would do, and do nothing.")] = False,
    # Nothing is asked today; scripts written for the published command say it all the same.
    no_interactive: Annotated[bool, typer.Option("--no-interactive", help="Ask nothing.", hidden=True)] = False,
) -> None:
    """Write starter configs, AGENTS.md, skills and the folders of a workspace; what is there is kept.

    Agents: amp, claude, codex, cursor, droid, grok, hermes, letta, opencode, pi; else codex and claude.

    JSON output (--output json): {path, written, kept, installed, proofs, steps}
    """
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.lab.agents import parse_agents
    from prime_cli.lab.setup import Workspace, set_up_workspace

    if (vllm or dry_run) and not prime_rl:
        raise BadInput("--vllm and --dry-run go with --prime-rl", hint="add --prime-rl, or leave them out")
    chosen = None if agents is None else parse_agents(agents)
    if dry_run:
        workspace, installed = Workspace(path), []
    else:
        workspace = set_up_workspace(path, agents=chosen, agents_md=False if skip_agents_md else None)
        installed = [] if skip_install else _install_verifiers(path)
    steps, proofs = _set_up_training(wants_vllm=vllm, dry_run=dry_run) if prime_rl else ([], [])
    if workspace.kept:
        out.note(escape(f"kept as it was: {', '.join(workspace.kept)} (see `prime lab sync --dry-run`)"))
    facts = {
        "path": str(path.resolve()), "written": workspace.written, "kept": workspace.kept,
        "installed": installed, "proofs": proofs, "steps": steps,
    }  # fmt: skip
    out.print_result(facts, "\n".join(steps) if dry_run else _ready(workspace, proofs))


def _install_verifiers(path: Path) -> list[str]:
    """Install what environments need into the workspace's interpreter, unless it has it."""
    from prime_cli.core import output as out
    from prime_cli.environments.workspace import workspace_python
    from prime_cli.lab.installation import missing_for_evaluating

    missing = missing_for_evaluating(workspace_python(path))
    if missing.requirements:
        out.note(f"installing {', '.join(missing.requirements)} into {missing.python} (--skip-install leaves it out)")
        missing.install()
    return missing.requirements


def _set_up_training(*, wants_vllm: bool, dry_run: bool) -> tuple[list[str], list[str]]:
    """Do the steps of the trainer's setup, or none of them; return them as lines, and what the proofs said."""
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.lab.trainer_setup import carry_out, has_nvidia_gpu, trainer_steps

    steps = trainer_steps(has_gpu=has_nvidia_gpu(), wants_vllm=wants_vllm)
    lines = [line for step in steps for line in step.lines()]
    proofs = [] if dry_run else list(carry_out(steps, lambda text: out.note(escape(text))))
    return lines, proofs


def _ready(workspace: Workspace, proofs: list[str]) -> str:
    ready = f"workspace ready in {workspace.path.resolve()} ({len(workspace.written)} files written)"
    return "\n".join([ready, *proofs, "next:", *(f"  {command:<52} {purpose}" for command, purpose in _NEXT)])


@app.command()
def sync(
    path: WorkspacePath = Path(),
    agents: Agents = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
) -> None:
    """Bring starter configs, AGENTS.md and skills up to date with this version; what you edited stays as it is.

    For each edited file that this version has otherwise, the difference is shown.

    JSON output (--output json): {path, updated, written, removed, edited: {file: difference}, own, left_out}
    """
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.lab.agents import parse_agents
    from prime_cli.lab.sync import sync_workspace

    report = sync_workspace(path, agents=None if agents is None else parse_agents(agents), dry_run=dry_run)
    out.print_result({"path": str(path.resolve()), **asdict(report)}, _synced(report, dry_run=dry_run))


def _synced(report: SyncReport, *, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    named = {
        f"{would}updated": report.updated,
        f"{would}written": report.written,
        f"{would}removed": report.removed,
        "edited by you, and this version has it otherwise": list(report.edited),
        "edited by you, nothing new": report.own,
        "taken away by you (`prime lab setup` writes it again)": report.left_out,
    }
    lines = [f"{title}: {', '.join(files)}" for title, files in named.items() if files]
    lines += report.edited.values()
    return "\n".join(lines) if lines else "everything is up to date"


@app.command()
def doctor(
    path: WorkspacePath = Path(),
    fix: Annotated[
        bool, typer.Option("--fix", help="Do what is safe: write missing files, install missing packages.")
    ] = False,
) -> None:
    """Examine the workspace and this machine, and say what to do about what is wrong; exit code 1 when something fails.

    JSON output (--output json): {path, findings: [{check, level (ok, warning, fails), message, hint, can_be_fixed}],
    fixed}
    """
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.lab.doctor.examination import examine, mend
    from prime_cli.lab.doctor.surroundings import these_surroundings

    around = these_surroundings(path)
    findings, fixed = examine(around), []
    if fix:
        fixed = mend(findings, lambda text: out.warn(escape(text)))
        for text in fixed:
            out.success(escape(text))
        findings = examine(these_surroundings(path)) if fixed else findings
    if out.mode().json:
        data = [finding.as_data() for finding in findings]
        out.print_json({"path": str(path.resolve()), "findings": data, "fixed": fixed})
    else:
        print_findings(findings)
    if any(finding.level == "fails" for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the task, the weights and the order of examples.")] = 0,
    path: Annotated[Path, typer.Option("--path", help="Where everything goes; emptied first.")] = Path("outputs/demo"),
) -> None:
    """Run the whole loop on this machine: publish, install, evaluate, train, evaluate again."""
    import sys
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.lab.demo import Demo

    if out.mode().json:
        # One object on stdout: what the steps print goes to stderr with everything else.
        summary = Demo(path, seed=seed, say=lambda text: typer.echo(text, err=True), stdout=sys.stderr.fileno()).run()
        out.print_json(asdict(summary))
        return
    summary = Demo(path, seed=seed, say=typer.echo).run()
    typer.echo()
    rewards = [("before RL", f"{summary.baseline_reward:.3f}"), ("after RL", f"{summary.final_reward:.3f}")]
    out.print_table(("held-out reward", f"seed {seed}"), rewards)
    out.print_table(("step", "seconds"), [*summary.steps.items(), ("all", summary.seconds)])
    out.print_table(("what", "where"), summary.paths.items())
