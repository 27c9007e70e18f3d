"""Installing from the index with the real pip and uv: public and private, by every way of handing over a key."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.published_tools import run
from tests.running_hub import Push, RunningHub, answer, make_wheel, sha256

NewUser = Callable[[], tuple[str, str]]
REASON = "rewards every answer"


@dataclass
class Installer:
    """pip or uv, and an environment that it installs into."""

    tool: str
    bin: Path
    home: Path

    def __post_init__(self) -> None:
        venv.create(self.home / "venv", with_pip=False)
        self.python = self.home / "venv" / "bin" / "python"

    def install(self, *requirements: object, index: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Install from this index and no other."""
        environment = {
            "HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "COLUMNS": "500",
            "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring", **environment,
        }  # fmt: skip
        if self.tool == "uv":
            options = ["--python", self.python, "--default-index", index, "--no-cache", "--reinstall"]
            options += ["--keyring-provider", "subprocess"]
            return run(self.bin / "uv", "pip", "install", *options, *requirements, **environment)
        options = ["--index-url", index, "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
        options += ["--force-reinstall", "--keyring-provider", "subprocess"]
        command = [self.bin / "python", "-m", "pip", "--python", self.python, "install"]
        return run(*command, *options, *requirements, **environment)

    def value(self, name: str) -> str:
        """Return the VALUE of an installed environment."""
        module = name.replace("-", "_")
        return run(self.python, "-c", f"import {module}; print({module}.VALUE)").stdout.strip()


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest, tools: Path, tmp_path: Path) -> Installer:
    """Each of the two."""
    return Installer(request.param, tools, tmp_path)


def publish(hub: RunningHub, key: str, name: str, version: str, visibility: str, *, needs: str = "") -> Push:
    """Publish a version that needs another package, where one is named."""
    with hub.client(key) as client:
        push = Push(client, name, version, code=f"VALUE = {version!r}\n", visibility=visibility)
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if needs:
            push.filename, push.wheel = make_wheel(
                name, version, code=push.code, metadata=f"{about}Requires-Dist: {needs}\n"
            )
        assert push.run().is_success
    return push


def index_of(hub: RunningHub, slug: str, password: str = "", user: str = "__token__") -> str:
    """Return the address of an owner's index; with a password in it, with a user alone, or plain."""
    credentials = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return hub.url.replace("http://", f"http://{credentials}") + f"/index/{slug}/simple/"


def by_key_in_the_url(hub: RunningHub, installer: Installer, slug: str, key: str) -> str:
    """The key stands in the URL."""
    return index_of(hub, slug, key)


def by_netrc(hub: RunningHub, installer: Installer, slug: str, key: str) -> str:
    """The key stands in ~/.netrc."""
    netrc = installer.home / ".netrc"
    netrc.write_text(f"machine 127.0.0.1 login __token__ password {key}\n")
    netrc.chmod(0o600)
    return index_of(hub, slug, user="")


def by_keyring(hub: RunningHub, installer: Installer, slug: str, key: str) -> str:
    """The keyring knows the key of the user that stands in the URL."""
    done = subprocess.run(
        [installer.bin / "keyring", "set", hub.url.removeprefix("http://"), "__token__"], input=key, text=True,
        capture_output=True, check=False,
        env={"HOME": str(installer.home), "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return index_of(hub, slug)


def by_token(hub: RunningHub, installer: Installer, slug: str, key: str) -> str:
    """The environment's details carry a URL with a token in it."""
    with hub.client(key) as client:
        return str(answer(client.get(f"/environmentshub/{slug}/closed/@latest"))["data"]["install_index_url"])


@pytest.mark.parametrize("way", [by_key_in_the_url, by_netrc, by_keyring, by_token])
def test_a_private_environment_installs_for_who_may_see_it(
    hub: RunningHub, new_user: NewUser, installer: Installer, way: Callable[[RunningHub, Installer, str, str], str]
) -> None:
    slug, key = new_user()
    publish(hub, key, "closed", "0.1.0", "PRIVATE")
    done = installer.install("closed", index=way(hub, installer, slug, key))
    assert done.returncode == 0, done.stdout + done.stderr
    assert installer.value("closed") == "0.1.0"
    assert key not in done.stdout + done.stderr


def test_a_private_environment_does_not_install_for_others(
    hub: RunningHub, new_user: NewUser, installer: Installer
) -> None:
    slug, key = new_user()
    _, stranger = new_user()
    publish(hub, key, "closed", "0.1.0", "PRIVATE")
    for index in (index_of(hub, slug, user=""), index_of(hub, slug, stranger), f"{hub.url}/simple/"):
        assert installer.install("closed", index=index).returncode != 0


def test_a_public_environment_installs_for_everybody_from_both_indexes(
    hub: RunningHub, new_user: NewUser, installer: Installer
) -> None:
    slug, key = new_user()
    name = f"open-{installer.tool}"
    publish(hub, key, name, "0.1.0", "PUBLIC")
    for index in (index_of(hub, slug, user=""), f"{hub.url}/simple/"):
        done = installer.install(name.replace("-", "_"), index=index)
        assert done.returncode == 0, done.stdout + done.stderr
        assert installer.value(name) == "0.1.0"


def test_a_yanked_version_is_passed_over_unless_pinned(
    hub: RunningHub, new_user: NewUser, installer: Installer
) -> None:
    slug, key = new_user()
    for version in ("0.1.0", "0.2.0"):
        publish(hub, key, "regretted", version, "PRIVATE")
    with hub.client(key) as client:
        answer(client.put(f"/environmentshub/{slug}/regretted/@0.2.0/yank", json={"reason": REASON}))
    index = index_of(hub, slug, key)
    assert REASON not in installer.install("regretted", index=index).stderr
    assert installer.value("regretted") == "0.1.0"
    pinned = installer.install("regretted==0.2.0", index=index)
    assert installer.value("regretted") == "0.2.0"
    assert REASON in pinned.stdout + pinned.stderr


def test_hashes_are_checked(hub: RunningHub, new_user: NewUser, installer: Installer) -> None:
    slug, key = new_user()
    push = publish(hub, key, "hashed", "0.1.0", "PRIVATE")
    locked = installer.home / "requirements.txt"
    for digest, right in ((sha256(push.wheel), True), ("0" * 64, False)):
        locked.write_text(f"hashed==0.1.0 --hash=sha256:{digest}\n")
        done = installer.install("--require-hashes", "-r", locked, index=index_of(hub, slug, key))
        assert (done.returncode == 0) is right, done.stdout + done.stderr


def test_a_dependency_comes_from_the_same_index(hub: RunningHub, new_user: NewUser, installer: Installer) -> None:
    slug, key = new_user()
    for version in ("0.1.0", "0.2.0"):
        publish(hub, key, "ground", version, "PRIVATE")
    publish(hub, key, "roof", "0.1.0", "PRIVATE", needs="ground<0.2")
    done = installer.install("roof", index=index_of(hub, slug, key))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (installer.value("roof"), installer.value("ground")) == ("0.1.0", "0.1.0")


def test_pip_downloads_the_published_bytes(hub: RunningHub, new_user: NewUser, tools: Path, tmp_path: Path) -> None:
    slug, key = new_user()
    push = publish(hub, key, "fetched", "0.1.0", "PRIVATE", needs="not-there-at-all")
    options = ["--no-deps", "--no-cache-dir", "--index-url", index_of(hub, slug, key), "--dest", tmp_path / "wheels"]
    done = run(tools / "python", "-m", "pip", "download", *options, "fetched")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "wheels" / push.filename).read_bytes() == push.wheel


def test_a_project_of_uv_locks_and_syncs(hub: RunningHub, new_user: NewUser, tools: Path, tmp_path: Path) -> None:
    slug, key = new_user()
    publish(hub, key, "locked", "0.1.0", "PRIVATE")
    password = {"UV_INDEX_HUB_USERNAME": "__token__", "UV_INDEX_HUB_PASSWORD": key}
    login = {**password, "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "0"}
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "project"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["locked"]\n'
        f'[[tool.uv.index]]\nname = "hub"\nurl = "{index_of(hub, slug, user="")}"\ndefault = true\n'
    )
    done = run(tools / "uv", "lock", folder=project, **login)
    assert done.returncode == 0, done.stderr
    lock = (project / "uv.lock").read_text()
    assert "sha256:" in lock
    assert key not in lock
    publish(hub, key, "locked", "0.2.0", "PRIVATE")
    done = run(tools / "uv", "sync", "--locked", folder=project, **login)
    assert done.returncode == 0, done.stderr
    assert "locked==0.1.0" in done.stderr
