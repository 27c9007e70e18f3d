"""`prime env`: write, build, publish and install environments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.commands import (
    env_action,
    env_change,
    env_fork,
    env_hub,
    env_install,
    env_mark,
    env_secret,
    env_source,
    env_yank,
)
from prime_cli.core.command_groups import new_group

app = new_group("Write, build, publish and install environments.")

EnvironmentsPath = Annotated[Path, typer.Option("--path", "-p", help="Where the workspace keeps its environments.")]
_ENVIRONMENTS = Path("environments")


@app.command()
def init(
    name: Annotated[str | None, typer.Argument(help="Name of the new environment, such as my-task.")] = None,
    path: EnvironmentsPath = _ENVIRONMENTS,
    template: Annotated[str, typer.Option(help="What to start from.")] = "single-turn",
    list_templates: Annotated[bool, typer.Option("--list-templates", help="Show the templates and exit.")] = False,
) -> None:
    """Write a new environment that works as it stands: package, rewards, tests."""
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.environments import scaffold

    if list_templates:
        templates = scaffold.list_templates()
        if out.mode().json:
            out.print_json({"templates": [{"name": entry.name, "summary": entry.summary} for entry in templates]})
        else:
            out.print_table(("template", "for"), [(entry.name, entry.summary) for entry in templates])
        return
    if name is None:
        raise BadInput("what is the environment to be called?", hint="`prime env init NAME`")
    written = scaffold.write_environment(name, path, template)
    out.print_result(
        {"name": written.name, "module": written.module, "template": written.template, "path": str(written.path)},
        f"{written.name} written to {written.path} from the template {written.template}",
    )
    out.note(f"next: edit {written.path / written.module}.py, then [cyan]prime env build {written.name}[/cyan]")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="A local environment or its folder; else this folder.")] = None,
    path: EnvironmentsPath = _ENVIRONMENTS,
) -> None:
    """Check that an environment can be imported and has `load_environment`."""
    from prime_cli.core import output as out
    from prime_cli.environments.check import check_project
    from prime_cli.environments.project import find_project
    from prime_cli.environments.workspace import workspace_python

    project, python = find_project(name, path), workspace_python()
    check_project(project, python)
    out.print_result(
        {"name": project.name, "module": project.module, "python": str(python)},
        f"{project.name} loads with {python}",
    )


@app.command()
def build(
    name: Annotated[str | None, typer.Argument(help="A local environment or its folder; else this folder.")] = None,
    path: EnvironmentsPath = _ENVIRONMENTS,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not import it first.")] = False,
) -> None:
    """Build the wheel of an environment into its dist folder."""
    from prime_cli.core import output as out
    from prime_cli.environments.build import build_wheel
    from prime_cli.environments.check import check_project
    from prime_cli.environments.project import find_project
    from prime_cli.environments.workspace import workspace_python

    project = find_project(name, path)
    out.note(f"checking and building {project.name}")
    check_project(project, workspace_python(), by_import=not no_check)
    wheel = build_wheel(project)
    out.print_result(
        {
            "name": wheel.name,
            "version": wheel.version,
            "path": str(wheel.path),
            "size_bytes": wheel.size_bytes,
            "sha256": wheel.sha256,
        },
        f"{wheel.path}  {wheel.size_bytes / 1024:.1f} KiB\nsha256 {wheel.sha256}",
    )


env_hub.register(app)
env_source.register(app)
env_install.register(app)
env_yank.register(app)
env_mark.register(app)
env_secret.register(app)
env_change.register(app)
env_fork.register(app)
env_action.register(app)
