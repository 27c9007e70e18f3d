"""Writes a new environment from one of the templates that ship with the tool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.files import directory_written_aside
from prime_cli.core.resources import resource_path
from prime_cli.environments.package_names import check_new_name, nearest

DEFAULT_TEMPLATE = "single-turn"
_SUMMARY = "SUMMARY"  # one line for the list of templates; not copied
_MODULE = "MODULE"  # stands for the module in names of files


@dataclass(frozen=True)
class EnvironmentTemplate:
    """A template by its name, with one line on what it is for."""

    name: str
    summary: str
    folder: Path


@dataclass(frozen=True)
class WrittenEnvironment:
    """A new environment: its distribution, its module, and the folder that holds it."""

    name: str
    module: str
    template: str
    path: Path


def list_templates() -> list[EnvironmentTemplate]:
    """Return the templates that ship with the tool, by name."""
    folders = sorted(path for path in resource_path("templates/environment").iterdir() if (path / _SUMMARY).is_file())
    return [EnvironmentTemplate(path.name, (path / _SUMMARY).read_text().strip(), path) for path in folders]


def write_environment(name: str, environments: Path, template_name: str = DEFAULT_TEMPLATE) -> WrittenEnvironment:
    """Write the environment `name` into `environments/<module>`, wholly or not at all.

    Raises:
        BadInput: the name cannot be a package, or there is no such template.
        PrimeError: something is there already, or the folder cannot be written.
    """
    identity = check_new_name(name)
    templates = {template.name: template for template in list_templates()}
    if template_name not in templates:
        guess = nearest(template_name, list(templates))
        hint = f"did you mean `{guess}`?" if guess else f"templates: {', '.join(templates)}"
        raise BadInput(f"there is no template {template_name!r}", hint=hint)
    folder = environments / identity.module
    if folder.exists() or folder.is_symlink():
        raise PrimeError(f"{folder} is there already", hint="choose another name, or remove the folder yourself")
    values = {"distribution": identity.distribution, "module": identity.module}
    try:
        with directory_written_aside(folder) as aside:
            _fill_in(templates[template_name].folder, aside, values)
    except OSError as error:
        raise PrimeError(f"cannot write {folder}: {error.strerror}", hint="choose another place by --path") from None
    return WrittenEnvironment(identity.distribution, identity.module, template_name, folder)


def _fill_in(template: Path, destination: Path, values: dict[str, str]) -> None:
    """Copy the files of a template, its placeholders (`${module}`) filled in; `gitignore` becomes a hidden file."""
    for source in sorted(template.rglob("*")):
        relative = source.relative_to(template)
        if source.is_dir() or relative.name == _SUMMARY or "__pycache__" in relative.parts:
            continue
        name = ".gitignore" if relative.name == "gitignore" else relative.name.replace(_MODULE, values["module"])
        target = destination / relative.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(source.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
