"""The program of a job on a cluster: an executable zip file."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from types import ModuleType
from typing import Dict, Iterable

#: The start of the program: runs the script of the job as ``__main__``.
_START = """\
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""

#: The time of all entries, so that the same files have the same digest.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_program(path: str, script: str) -> None:
    """Writes an executable zip file with a script, and the modules of its folder that it has
    imported.

    The program runs with the interpreter of this process, which a container finds under the same
    path.
    """
    folder = os.path.dirname(os.path.abspath(script))
    stem = os.path.splitext(os.path.basename(script))[0]
    module = stem if stem.isidentifier() else "ardea_job"
    files = {f"{module}.py": os.path.abspath(script)}
    for name, file in _modules_of(folder, sys.modules.values()).items():
        files.setdefault(name, file)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            with open(files[name], "rb") as source:
                archive.writestr(zipfile.ZipInfo(name, _TIME), source.read())
        start = _START.format(module=module)
        archive.writestr(zipfile.ZipInfo("__main__.py", _TIME), start)
    with open(path, "wb") as program:
        program.write(f"#!{sys.executable}\n".encode())
        program.write(packed.getvalue())
    os.chmod(path, 0o755)


def _modules_of(folder: str, modules: Iterable[ModuleType]) -> Dict[str, str]:
    """Returns the files of the modules in a folder, with their names below it."""
    files = {}
    for module in list(modules):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        name = os.path.relpath(os.path.abspath(file), folder)
        is_below = not name.startswith(os.pardir) and "site-packages" not in name.split(os.sep)
        if is_below and getattr(module, "__name__", "") != "__main__":
            files[name.replace(os.sep, "/")] = os.path.abspath(file)
    return files
