from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.check import check_project
from prime_cli.environments.project import read_project
from tests.prime_cli.environments.conftest import GOOD, MakeProject

PYTHON = Path(sys.executable)


def test_an_environment_that_loads_passes_and_is_not_imported_again(make_project: MakeProject) -> None:
    folder = make_project(code=f"open(__file__ + '.ran', 'a').write('x')\n{GOOD}")
    for _ in range(2):
        check_project(read_project(folder), PYTHON)
    assert (folder / "tiny_sum.py.ran").read_text() == "x"
    (folder / "tiny_sum.py").write_text(f"{(folder / 'tiny_sum.py').read_text()}# changed\n")
    check_project(read_project(folder), PYTHON)
    assert (folder / "tiny_sum.py.ran").read_text() == "xx"


def test_a_failing_import_shows_the_environments_own_frames(make_project: MakeProject) -> None:
    folder = make_project(code=f"{GOOD}\ndef start():\n    return {{}}['missing']\n\n\nstart()\n")
    with pytest.raises(PrimeError) as caught:
        check_project(read_project(folder), PYTHON)
    assert caught.value.message.splitlines() == [
        "tiny_sum cannot be imported: KeyError: 'missing'",
        "  tiny_sum.py, line 8, in <module>",
        "    start()",
        "  tiny_sum.py, line 5, in start",
        "    return {}['missing']",
    ]


def test_a_missing_dependency_says_where_it_is_missing(make_project: MakeProject) -> None:
    folder = make_project(code=f"import not_there_at_all\n{GOOD}")
    with pytest.raises(PrimeError, match="ModuleNotFoundError: No module named 'not_there_at_all'") as caught:
        check_project(read_project(folder), PYTHON)
    assert str(PYTHON) in (caught.value.hint or "")


def test_a_long_way_through_other_code_is_cut_short(make_project: MakeProject) -> None:
    folder = make_project(code=f"import json\njson.loads('{{')\n{GOOD}")
    with pytest.raises(PrimeError) as caught:
        check_project(read_project(folder), PYTHON)
    places = [line for line in caught.value.message.splitlines() if ", line " in line]
    assert places[0] == "  tiny_sum.py, line 2, in <module>"
    assert len(places) == 3
    assert places[-1].startswith("  json/decoder.py")


def test_an_import_that_ends_the_interpreter_is_told(make_project: MakeProject) -> None:
    folder = make_project(code=f"import os\nos._exit(3)\n{GOOD}")
    with pytest.raises(PrimeError, match="ended the interpreter"):
        check_project(read_project(folder), PYTHON)


def test_prints_of_the_environment_do_not_disturb_the_verdict(make_project: MakeProject) -> None:
    folder = make_project(code=f"print('{json.dumps({'error': 'no'})}')\n{GOOD}")
    check_project(read_project(folder), PYTHON)


def test_a_star_import_is_decided_by_the_import(make_project: MakeProject) -> None:
    folder = make_project(code="from os.path import *\n")
    with pytest.raises(PrimeError, match="has no `load_environment` once it is imported"):
        check_project(read_project(folder), PYTHON)


def test_a_project_without_its_module_is_refused(make_project: MakeProject) -> None:
    folder = make_project()
    (folder / "tiny_sum.py").rename(folder / "other.py")
    with pytest.raises(PrimeError, match=r"no module tiny_sum\.py"):
        check_project(read_project(folder), PYTHON)
