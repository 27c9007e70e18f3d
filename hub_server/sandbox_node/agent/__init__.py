"""The first process of a sandbox. `inside` runs there, in the interpreter that the node brings; this writes it down."""

from __future__ import annotations

import py_compile
import shutil
from pathlib import Path

_INSIDE = Path(__file__).parent / "inside"
# Started by its own name: what starts a folder or a module imports more than the agent does.
ENTRY = "start.pyc"
_START = "import sys\n\nsys.path.insert(0, __file__.rpartition('/')[0])\nfrom agent.process import main\n\nmain()\n"


def write_agent(folder: Path) -> None:
    """Write what `python -I -S -B FOLDER/start.pyc` starts as an agent, compiled for the interpreter that runs this.

    Its one optional argument is a list of descriptors, with commas between: of files that take a process into the
    cgroup of commands when it writes 0 to each of them.

    It is compiled ahead: to compile it at each start would take longer than all else. The zygote stays source, for it
    is run by whatever Python the image has.
    """
    package = folder / "agent"
    package.mkdir(parents=True, exist_ok=True)
    start = folder / "start.py"
    start.write_text(_START)
    sources = {start: folder / ENTRY}
    sources |= {path: package / f"{path.stem}.pyc" for path in _INSIDE.glob("*.py") if path.stem != "zygote"}
    for source, compiled in sources.items():
        py_compile.compile(
            str(source),
            cfile=str(compiled),
            dfile=f"agent/{source.name}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    start.unlink()
    shutil.copyfile(_INSIDE / "zygote.py", package / "zygote.py")
    for path in [folder, package, *folder.glob("*.pyc"), *package.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
