"""The program of a job on a cluster: an executable zip file."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from types import ModuleType
from typing import Dict, Iterable, Mapping, Optional

from . import unpacking

#: The start of the program: runs the script of the job as ``__main__``.
_START = """\
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""

#: The folder of packages in the program.
_PACKAGES = "site-packages/"

#: The start of a program with packages. They are unpacked on each host, in a folder that is named by
#: their digest, since extension modules cannot be loaded from a zip file.
_START_WITH_PACKAGES = """\
import sys
from ardea_unpacking import unpacked
sys.path.insert(1, unpacked(sys.path[0], {digest!r}, {packages!r}))
"""

#: The module of a program that unpacks its packages.
_UNPACKING = "ardea_unpacking.py"

#: The time of all entries, so that the same files have the same digest.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_program(path: str, script: str, packages: Optional[Mapping[str, str]] = None) -> None:
    """Writes an executable zip file with a script, and the modules of its folder that it has
    imported.

    The program runs with the interpreter of this process, which a container finds under the same
    path. ``packages`` are files of packages by their names; the program then runs with the base
    interpreter of a virtual environment, and needs no package of the host.
    """
    folder = os.path.dirname(os.path.abspath(script))
    stem = os.path.splitext(os.path.basename(script))[0]
    module = stem if stem.isidentifier() else "ardea_job"
    files = {f"{module}.py": os.path.abspath(script)}
    for name, file in _modules_of(folder, sys.modules.values()).items():
        files.setdefault(name, file)
    start, interpreter = _START.format(module=module), sys.executable
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _add(archive, files)
        if packages:
            _add(archive, {_UNPACKING: unpacking.__file__})
            interpreter = os.path.realpath(sys.executable)
            named = {_PACKAGES + name.replace(os.sep, "/"): file for name, file in packages.items()}
            digest = _add(archive, named)
            start = _START_WITH_PACKAGES.format(packages=_PACKAGES, digest=digest) + start
        archive.writestr(zipfile.ZipInfo("__main__.py", _TIME), start)
    with open(path, "wb") as program:
        program.write(f"#!{interpreter}\n".encode())
        program.write(packed.getvalue())
    os.chmod(path, 0o755)


def _add(archive: zipfile.ZipFile, files: Mapping[str, str]) -> str:
    """Adds files to an archive, and returns the digest of their names and contents."""
    digest = hashlib.sha256()
    for name in sorted(files):
        with open(files[name], "rb") as source:
            content = source.read()
        entry = zipfile.ZipInfo(name, _TIME)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, content, compresslevel=1)
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


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
