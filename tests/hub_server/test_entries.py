"""What is imported of a wheel, and that a push needs the module of the environment's name."""

from __future__ import annotations

import httpx
import pytest

from hub_server.errors import Malformed
from hub_server.registry.entries import check_entry, importable_modules
from hub_server.registry.index import JSON_TYPE
from tests.running_hub import Push, RunningHub, answer, make_wheel


@pytest.mark.parametrize(
    ("members", "modules"),
    [
        (["some_task.py"], {"some_task"}),
        (["some_task/__init__.py", "some_task/core.py"], {"some_task", "some_task/"}),
        (["some_task.cpython-311-x86_64-linux-gnu.so", "other.pyd"], {"some_task", "other"}),
        (["some_task-0.1.0.data/purelib/some_task.py", "x-1.data/platlib/y/__init__.py"], {"some_task", "y"}),
        (["x-1.data/scripts/tool.py", "x-1.dist-info/METADATA", "some-task.py", "data.json", "stubs.pyi"], set()),
        (["google/cloud/thing.py"], {"google/"}),
    ],
)
def test_what_is_imported_of_a_wheel_are_modules_and_packages(members: list[str], modules: set[str]) -> None:
    assert importable_modules(members) == modules


@pytest.mark.parametrize(
    ("name", "module"),
    [("some-task", "some_task"), ("Some-Task", "some_task"), ("Some-Task", "Some_Task"), ("some.task", "some_task")],
)
def test_an_environment_is_imported_by_its_name_with_underscores(name: str, module: str) -> None:
    check_entry(name, "a.whl", frozenset({module, "other"}))


def test_a_package_without_an_init_is_no_environment() -> None:
    with pytest.raises(Malformed, match="by which the environment 'some-task' is imported; it has some_task"):
        check_entry("some-task", "a.whl", frozenset({"some_task/"}))


def test_a_push_without_the_module_of_its_name_is_refused_and_a_sound_one_can_follow(hub: RunningHub) -> None:
    with hub.client(hub.key_of("entries")) as client:
        push = Push(client, "no-entry", "0.1.0")
        push.resolve()
        sound = push.filename, push.wheel
        push.filename, push.wheel = make_wheel("no-entry", "0.1.0", extra={"other.py": "VALUE = 1\n"}, has_module=False)
        refused = push.send_wheel()
        assert refused.status_code == 400
        assert refused.json()["detail"] == (
            f"the wheel {push.filename!r} has no module no_entry.py or no_entry/__init__.py, by which the environment "
            "'no-entry' is imported; it has other"
        )
        unfinished = push.send_source()
        assert unfinished.status_code == 400
        assert "no checked wheel" in unfinished.json()["detail"]
        assert client.get("/environmentshub/entries/no-entry/@latest").status_code == 404
        push.filename, push.wheel = sound
        assert push.run().is_success
        assert answer(client.get("/environmentshub/entries/no-entry/@latest"))["data"]["wheel_sha256"]


def test_wheels_for_several_platforms_are_published_together_and_none_is_added_later(hub: RunningHub) -> None:
    slug, key = "platforms", hub.key_of("platforms")

    def send(push: Push, tag: str) -> int:
        push.filename = f"many_tags-0.1.0-{tag}.whl"
        push.wheel = make_wheel("many-tags", "0.1.0", code=f"TAG = {tag!r}\n")[1]
        return push.send_wheel().status_code

    def files() -> set[str]:
        page = httpx.get(
            f"{hub.url}/index/{slug}/simple/many-tags/", headers={"Accept": JSON_TYPE}, trust_env=False
        ).json()
        return {file["filename"] for file in page["files"]}

    with hub.client(key) as client:
        push = Push(client, "many-tags", "0.1.0")
        push.resolve()
        assert [send(push, tag) for tag in ("py3-none-win_amd64", "py3-none-macosx_11_0_arm64")] == [200, 200]
        assert push.send_source().is_success
        published = files()
        assert len(published) == 2
        assert send(push, "py3-none-any") == 409
        by_form = httpx.post(
            f"{hub.url}/index/{slug}/legacy/", files={"content": (push.filename, push.wheel)},
            data={":action": "file_upload"}, auth=("__token__", key), trust_env=False,
        )  # fmt: skip
        assert by_form.status_code == 409
        assert "never changes" in by_form.json()["detail"]
        assert files() == published
