"""Pipelines: the description of a job, and its run in this process."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Union

from . import _ardea, commands, processes
from .collected import Collected
from .durations import Duration
from .errors import invalid
from .messages import policy
from .notebook import LiveTable
from .plans import Output, Plan
from .sources import Items
from .streams import Stream


class SourceLike(Protocol):
    """A source of records, such as ``ardea.files.json("in.jsonl")``."""

    def source(self) -> Dict[str, Any]:
        """Returns the source as plain data."""


class SinkLike(Protocol):
    """A sink for records, such as ``ardea.files.json("out.jsonl")``."""

    def sink(self) -> Dict[str, Any]:
        """Returns the sink as plain data."""


class Outcome(NamedTuple):
    """The end of a run.

    ``state`` is ``"completed"``, ``"drained"`` after Ctrl-C, or ``"stopped"`` if the last
    checkpoint after Ctrl-C could not be made in time.
    """

    state: str


class Pipeline:
    """The description of a job.

    ``on_error`` is the treatment of a record on which a function fails, unless the step says
    otherwise: ``"fail"`` (the default), ``"dead_letter"`` or ``"drop"``.
    """

    def __init__(self, name: str, *, on_error: str = "fail") -> None:
        if not isinstance(name, str) or not name:
            raise invalid(f"the name of a job is a text, and not {name!r}")
        self.name = name
        self.on_error = policy(on_error)
        self._plan = Plan(name)
        self._collected: List[Collected] = []
        self._tables: List[LiveTable] = []
        self._names: Dict[str, int] = {}
        self._processes: Optional[Dict[str, Any]] = None
        self._process_options = processes.options(None, None, None)

    def functions(
        self,
        *,
        in_processes: bool,
        answer_timeout: Optional[Duration] = None,
        memory_bytes: Optional[int] = None,
        deaths_per_record: Optional[int] = None,
    ) -> None:
        """Sets where the functions of the following steps run: in the process of the job, which is the
        default, or with ``in_processes`` in a process of their own for each instance of a step.

        This concerns ``filter``, ``map``, ``flat_map`` and ``map_batches``, whose ``process=`` decides
        for a step. Such a process may crash or hang without harm to the job: it is killed if it does
        not answer for ``answer_timeout`` (60 s) or has more resident memory than ``memory_bytes``, and
        is started again. A record that was in flight at ``deaths_per_record`` (3) deaths becomes a dead
        letter. The process runs the script of the job up to ``p.run()``.
        """
        self._process_options = processes.options(answer_timeout, memory_bytes, deaths_per_record)
        self._processes = self._process_options if in_processes else None

    def _process(self, wanted: Optional[bool]) -> Optional[Dict[str, Any]]:
        """Returns the options of the process of a step; ``None`` for the process of the job."""
        if wanted is None:
            return self._processes
        return self._process_options if wanted else None

    def read(self, source: Union[SourceLike, Items]) -> Stream:
        """Reads from a source."""
        if isinstance(source, Items):
            values = self._plan.keep(source.values())
            step = self._plan.add("read", [], source=source.source(values))
            return Stream(self, (step, 0), not source.has_columns())
        if not hasattr(source, "source"):
            raise invalid(f"{source!r} is no source", 'read for example ardea.files.json("in.jsonl")')
        step = self._plan.add("read", [], source=source.source())
        return Stream(self, (step, 0), False)

    def run(
        self,
        *,
        threads: Optional[int] = None,
        guarantee: Optional[str] = None,
        checkpoints: Optional[str] = None,
        dead_letters: Optional[str] = None,
        settings: Optional[Mapping[str, Any]] = None,
        quiet: Optional[bool] = None,
        ui: Union[str, bool, None] = None,
    ) -> Outcome:
        """Runs the job in this process until it ends.

        ``guarantee`` is ``"exactly-once"`` or ``"at-least-once"``; checkpoints then stand in the
        folder ``checkpoints``, from which the next run continues. ``dead_letters`` is a file for
        the records that could not be processed. ``settings`` are further ones, by their names in
        ``docs/tuning.md``. ``ui`` is the address of the job's web page, such as
        ``"127.0.0.1:7401"``; with ``True`` it is that one, or another free port. Progress and a
        summary are shown on standard error if it is a terminal, unless ``quiet`` says otherwise.

        In a script, the first word of the command line may be a command: ``python job.py submit``
        submits the job to a cluster, and the process then ends. See ``docs/python.md``.

        Ctrl-C drains the job, and a second one stops it at once with ``KeyboardInterrupt``.

        Raises ``ardea.Error`` if the job fails. An exception of a function is its ``__cause__``.
        """
        module = sys._getframe(1).f_globals.get("__name__", "")
        if processes.is_process_of_function() and module == "__main__":
            processes.serve(self._plan)
        if self._plan.has_processes():
            self._plan.words = processes.words(module, commands.arguments())
        flags = run_flags(threads, guarantee, checkpoints, dead_letters, settings, ui)
        if commands.has_command(module):
            commands.main(self._plan, flags)
        if quiet is None:
            quiet = not sys.stderr.isatty()
        state, collected = _ardea.run(self._plan.to_json(), self._plan.objects, flags, quiet)
        for into, batches in zip(self._collected, collected):
            into._set(batches)
        for table in self._tables:
            table.show()
        return Outcome(state)

    def _collect(self, collected: Collected, output: Output) -> None:
        self._plan.add("collect", [output])
        self._collected.append(collected)

    def _step_name(self, given: Optional[str], kind: str) -> str:
        """Returns the name of a step with state; a generated one is the kind with a number."""
        if given is not None:
            return given
        number = self._names[kind] = self._names.get(kind, 0) + 1
        return kind if number == 1 else f"{kind}-{number}"


def run_flags(
    threads: Optional[int],
    guarantee: Optional[str],
    checkpoints: Optional[str],
    dead_letters: Optional[str],
    settings: Optional[Mapping[str, Any]],
    ui: Union[str, bool, None] = None,
) -> List[str]:
    """Returns the settings of a run as ``KEY=VALUE``."""
    given = {
        "threads": threads,
        "guarantee": guarantee,
        "checkpoints.folder": checkpoints,
        "dead_letters": dead_letters,
        "ui": "on" if ui is True else ui or None,
        **(settings or {}),
    }
    return [f"{key}={_setting(value)}" for key, value in given.items() if value is not None]


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
