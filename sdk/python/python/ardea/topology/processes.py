"""The process of a component: ``python -m ardea component module:Class``."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import sys
from types import ModuleType
from typing import Any, List, NoReturn, Type

from ..errors import Error, invalid
from ..instances import Connection
from .components import Component, description_of
from .served import served

_USAGE = """\
usage: python -m ardea component [--describe] MODULE:CLASS

Serves a spout or bolt to the host that has started this process. CLASS is a class of the module
MODULE, or of the file FILE.py. With --describe, prints its streams as JSON.
"""

_PR_SET_PDEATHSIG = 1


def main(words: List[str]) -> int:
    """Runs the command, and returns the exit code."""
    is_description = "--describe" in words
    names = [word for word in words if word != "--describe"]
    if len(names) != 1 or names[0].startswith("-"):
        sys.stderr.write(_USAGE)
        return 0 if names in (["--help"], ["-h"]) else 2
    if is_description:
        try:
            # The module may print.
            with contextlib.redirect_stdout(sys.stderr):
                description = description_of(found(names[0]))
        except Error as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        print(json.dumps(description))
        return 0
    connection = Connection.of_process()
    end_with_host()
    component = found(names[0])
    description_of(component)
    return 0 if served(component, connection).serve() else 1


def serve(component: Type[Component]) -> NoReturn:
    """Serves a class to the host that has started this process, and ends the process."""
    connection = Connection.of_process()
    end_with_host()
    is_stopped = served(component, connection).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if is_stopped else 1)


def end_with_host() -> None:
    """Lets the kernel end this process when its host has ended: a call may never return."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def found(name: str) -> Type[Any]:
    """Returns the class with a name of the form ``module:Class`` or ``file.py:Class``."""
    module_name, separator, path = name.rpartition(":")
    if not separator or not module_name or not path:
        raise invalid(f"{name!r} names no class", "write MODULE:CLASS")
    module = _module(module_name)
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, type):
        raise invalid(f"the module {module_name!r} has no class {path!r}")
    return value


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0] and error.name != name:
                raise
            raise invalid(
                f"there is no module {name!r}", "run in its folder, or set PYTHONPATH"
            ) from error
    path = os.path.abspath(name)
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if not os.path.isfile(path) or spec is None or spec.loader is None:
        raise invalid(f"there is no file {name}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    sys.modules[stem] = module
    spec.loader.exec_module(module)
    return module
