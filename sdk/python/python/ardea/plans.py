"""The plan of a job: its steps as plain data, and the functions that they call."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Tuple

from . import _ardea

#: The output of a step: the index of the step, and the number of its output.
Output = Tuple[int, int]

#: The version of the form of plans.
VERSION = 1


class Plan:
    """The steps of a job, which Rust compiles to a graph.

    Steps are plain data; functions and values of collections stand beside them, and steps refer to
    them by index.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: List[Dict[str, Any]] = []
        self.objects: List[Any] = []
        #: The command line that describes the same job in the process of a function.
        self.words: List[str] = []

    def add(self, kind: str, inputs: List[Output], **options: Any) -> int:
        """Adds a step and returns its index."""
        step: Dict[str, Any] = {"kind": kind, "inputs": inputs, "place": place_of_caller()}
        step.update(options)
        self.steps.append(step)
        return len(self.steps) - 1

    def keep(self, value: Any) -> int:
        """Adds a function or collection and returns its index."""
        self.objects.append(value)
        return len(self.objects) - 1

    def has_processes(self) -> bool:
        """Returns true if a function runs in a process of its own."""
        return any(step.get("process") is not None for step in self.steps)

    def main(self, words: List[str], program: str, name: str, host: List[str]) -> int:
        """Runs a command of the job, and returns the exit code."""
        return _ardea.main(words, self.to_json(), self.objects, program, name, host)

    def to_json(self) -> str:
        """Returns the steps as JSON."""
        plan = {"version": VERSION, "name": self.name, "steps": self.steps, "words": self.words}
        return json.dumps(plan)


def place_of_caller() -> str:
    """Returns the file and line of the user's code that calls this package."""
    frame = sys._getframe(1)
    package = __name__.rpartition(".")[0]
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module != package and not module.startswith(package + "."):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
