"""The description of a topology, and its run in this process."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, Union

from .. import _ardea, commands, processes
from ..durations import Duration, microseconds
from ..errors import invalid
from ..pipelines import Outcome, run_flags
from .components import DEFAULT_STREAM, Bolt, Component, Spout, description_of
from .processes import serve

#: A component: a class of Python, or the name of a built-in one such as ``"lines"``.
ComponentLike = Union[str, Type[Spout], Type[Bolt]]


class BoltInputs:
    """The subscriptions of a bolt. Each call adds one, and returns this object."""

    def __init__(self, inputs: List[Dict[str, Any]]) -> None:
        self._inputs = inputs

    def shuffle(self, component: str, stream: str = DEFAULT_STREAM) -> BoltInputs:
        """Distributes the tuples evenly."""
        return self._add(component, stream, "shuffle")

    def local_or_shuffle(self, component: str, stream: str = DEFAULT_STREAM) -> BoltInputs:
        """Sends tuples to instances in the same process, if there are any."""
        return self._add(component, stream, "local-or-shuffle")

    def fields(
        self, component: str, fields: Sequence[str], stream: str = DEFAULT_STREAM
    ) -> BoltInputs:
        """Sends tuples with equal values of these fields to the same instance."""
        if isinstance(fields, str):
            raise invalid(f"the fields of a grouping are a list: [{fields!r}]")
        return self._add(component, stream, "fields", fields=list(fields))

    def all(self, component: str, stream: str = DEFAULT_STREAM) -> BoltInputs:
        """Sends each tuple to every instance."""
        return self._add(component, stream, "all")

    def to_first(self, component: str, stream: str = DEFAULT_STREAM) -> BoltInputs:
        """Sends all tuples to the first instance: the grouping ``global``."""
        return self._add(component, stream, "global")

    def direct(self, component: str, stream: str) -> BoltInputs:
        """Receives a direct stream."""
        return self._add(component, stream, "direct")

    def _add(self, component: str, stream: str, grouping: str, **options: Any) -> BoltInputs:
        self._inputs.append({"from": component, "stream": stream, "grouping": grouping, **options})
        return self


class TopologyBuilder:
    """The description of a topology.

    With the ``reliability`` ``"at-least-once"`` spouts hear of processed and failed messages.
    ``max_spout_pending`` bounds the messages in flight of a spout instance, and a message that is
    not processed within ``message_timeout`` fails.
    """

    def __init__(
        self,
        name: str,
        *,
        reliability: str = "at-most-once",
        max_spout_pending: Optional[int] = None,
        message_timeout: Optional[Duration] = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise invalid(f"the name of a job is a text, and not {name!r}")
        self.name = name
        self._config: Dict[str, Any] = {"reliability": reliability}
        if max_spout_pending is not None:
            self._config["max_spout_pending"] = max_spout_pending
        if message_timeout is not None:
            self._config["message_timeout"] = _duration(message_timeout)
        self._spouts: List[Dict[str, Any]] = []
        self._bolts: List[Dict[str, Any]] = []
        self._classes: Dict[str, Type[Component]] = {}

    def spout(
        self,
        name: str,
        component: ComponentLike,
        *,
        parallelism: int = 1,
        settings: Optional[Mapping[str, Any]] = None,
        cpu: Optional[float] = None,
        memory: Optional[str] = None,
    ) -> None:
        """Adds a spout with as many instances.

        ``settings`` are the keyword arguments of the class. ``cpu`` (cores) and ``memory`` (such as
        ``"256MiB"``) are the resources of an instance on a cluster.
        """
        self._spouts.append(self._component(name, component, Spout, parallelism, settings, cpu, memory))

    def bolt(
        self,
        name: str,
        component: ComponentLike,
        *,
        parallelism: int = 1,
        settings: Optional[Mapping[str, Any]] = None,
        cpu: Optional[float] = None,
        memory: Optional[str] = None,
        tick_every: Optional[Duration] = None,
    ) -> BoltInputs:
        """Adds a bolt, like ``spout``, and returns its subscriptions. ``tick`` is called at the
        interval ``tick_every``."""
        bolt = self._component(name, component, Bolt, parallelism, settings, cpu, memory)
        if tick_every is not None:
            bolt["tick_every"] = _duration(tick_every)
        bolt["inputs"] = []
        self._bolts.append(bolt)
        return BoltInputs(bolt["inputs"])

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
        """Runs the topology in this process until all spouts are done.

        The parameters are those of ``Pipeline.run``, and so are the commands of a script such as
        ``python job.py submit``. The process of a component runs the script up to this call.
        """
        flags = run_flags(threads, guarantee, checkpoints, dead_letters, settings, ui)
        module = sys._getframe(1).f_globals.get("__name__", "")
        served = processes.served_component()
        if served is not None:
            if module == "__main__" and served in self._classes:
                serve(self._classes[served])
            raise invalid(
                f"the process of the component {served!r} has no topology with it",
                "the script must describe the same topology in each process",
            )
        if commands.has_command(module):
            commands.main(TopologyJob(self._description(module)), flags)
        if quiet is None:
            quiet = not sys.stderr.isatty()
        return Outcome(_ardea.run_topology(self._description(module), flags, quiet))

    def _component(
        self,
        name: str,
        component: ComponentLike,
        kind: type,
        parallelism: int,
        settings: Optional[Mapping[str, Any]],
        cpu: Optional[float],
        memory: Optional[str],
    ) -> Dict[str, Any]:
        described: Dict[str, Any] = {"name": name, "component": component, "parallelism": parallelism}
        if not isinstance(component, str):
            streams = description_of(component)["outputs"]
            if not issubclass(component, kind):
                raise invalid(f"{component.__name__} is no {kind.__name__.lower()}")
            described.update(component="process", outputs=streams)
            self._classes[name] = component
        options = {"settings": dict(settings) if settings else None, "cpu": cpu, "memory": memory}
        described.update({key: value for key, value in options.items() if value is not None})
        return described

    def _description(self, module: str) -> str:
        """Returns the topology in the form of topology files."""
        words = processes.words(module, commands.arguments()) if self._classes else []

        def with_command(component: Dict[str, Any]) -> Dict[str, Any]:
            name = component["name"]
            if name not in self._classes:
                return component
            return {**component, "command": words, "env": processes.component_variables(name)}

        description = {
            "name": self.name,
            "config": self._config,
            "spouts": [with_command(spout) for spout in self._spouts],
            "bolts": [with_command(bolt) for bolt in self._bolts],
        }
        # A document of JSON is one of YAML.
        return json.dumps(description, indent=1)


class TopologyJob:
    """A topology for the commands of a script."""

    def __init__(self, description: str) -> None:
        self._description = description

    def main(self, words: List[str], program: str, name: str, host: List[str]) -> int:
        """Runs a command, and returns the exit code."""
        return _ardea.main_topology(words, self._description, program, name, host)


def _duration(duration: Duration) -> str:
    return f"{microseconds(duration)}us"
