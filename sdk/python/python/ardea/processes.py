"""Functions and components in processes of their own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional

from . import _ardea
from .durations import Duration, microseconds
from .errors import invalid

if TYPE_CHECKING:
    from .plans import Plan

#: The environment variable with the index of the function that this process serves.
_VARIABLE = "ARDEA_PYTHON_FUNCTION"

#: The environment variable with the name of the component that this process serves.
_COMPONENT_VARIABLE = "ARDEA_PYTHON_COMPONENT"

#: The index of the function that this process serves. Processes of user code do not inherit it.
_SERVED = os.environ.pop(_VARIABLE, None)

#: The name of the component of a topology that this process serves.
_SERVED_COMPONENT = os.environ.pop(_COMPONENT_VARIABLE, None)


def is_process_of_function() -> bool:
    """Returns true if this process serves a function of a step."""
    return _SERVED is not None


def served_component() -> Optional[str]:
    """Returns the name of the component that this process serves; ``None`` if it serves none."""
    return _SERVED_COMPONENT


def component_variables(name: str) -> Dict[str, str]:
    """Returns the environment variables of the processes of a component."""
    return {_COMPONENT_VARIABLE: name}


def serve(plan: Plan) -> NoReturn:
    """Serves a function of the plan to the job, and ends the process."""
    _ardea.serve_function(plan.to_json(), plan.objects, int(_SERVED or 0))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def options(
    answer_timeout: Optional[Duration], memory_bytes: Optional[int], deaths_per_record: Optional[int]
) -> Dict[str, Any]:
    """Returns the options of processes as plain data."""
    return {
        "answer_timeout": None if answer_timeout is None else microseconds(answer_timeout),
        "memory_bytes": memory_bytes,
        "deaths_per_record": deaths_per_record,
    }


def words(module: str, arguments: List[str]) -> List[str]:
    """Returns the command line that describes the same job in another process: the interpreter, the
    script that runs as ``module``, and the job's own arguments."""
    script = _file_of(os.path.abspath(sys.argv[0]))
    if module != "__main__" or script is None:
        raise invalid(
            "functions and components in processes need the script of the job",
            "write the job to a file, and call run() in it",
        )
    return [sys.executable, script, *arguments]


def _file_of(script: str) -> Optional[str]:
    """Returns the file to run for a script: the script, or the program of a job that has it. ``None``
    without a file."""
    if os.path.isfile(script):
        return script
    folder = os.path.dirname(script)
    return folder if os.path.isfile(folder) else None
