"""Spouts and bolts."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from ..durations import Duration, microseconds
from ..errors import invalid
from .collectors import Collector, SpoutCollector
from .state import State
from .tuples import Tuple

#: The name of the stream of a component that names none.
DEFAULT_STREAM = "default"


class Direct(NamedTuple):
    """The fields of a direct stream: its tuples go to an instance that the component chooses."""

    fields: Sequence[str]


#: The streams of a component: the fields of its only one, or those of several by name.
OutputsLike = Union[Sequence[str], Mapping[str, Union[Sequence[str], Direct]]]


class OutputStream(NamedTuple):
    """A stream that a component emits."""

    stream: str
    fields: List[str]
    direct: bool


class Next(NamedTuple):
    """The time of the next call of a spout: in microseconds; negative for none."""

    wait_micros: int


#: The answer of a spout that has no further tuples.
DONE = Next(-1)


def wait(duration: Duration) -> Next:
    """Returns the answer of a spout that has no tuples for ``duration``."""
    return Next(microseconds(duration))


class ComponentContext:
    """The place of an instance in its topology."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        #: The name of the job.
        self.job: str = configuration.get("job", "")
        #: The name of the component.
        self.component: str = configuration.get("step", "")
        #: The index of the instance, from 0.
        self.instance: int = configuration.get("instance", 0)
        #: The number of instances of the component.
        self.instances: int = configuration.get("instances", 1)
        #: The guarantee of the job: ``"none"``, ``"at-least-once"`` or ``"exactly-once"``.
        self.guarantee: str = configuration.get("guarantee", "none") or "none"
        #: True if failed and timed out messages are reported to the spout.
        self.acks: bool = bool(configuration.get("acks", False))


class Component:
    """A spout or bolt: the parts that both have.

    The ``settings`` of a component are the keyword arguments of its class. ``outputs`` are the
    fields of its stream, or of several streams by name. An instance with ``has_state`` keeps what it
    has to remember in ``self.state``, which is part of checkpoints.
    """

    outputs: ClassVar[OutputsLike] = ()
    has_state: ClassVar[bool] = False
    #: The state of the instance. It exists from ``open`` or ``prepare`` on.
    state: State

    def committed(self, epoch: int) -> None:
        """Handles the commit of a checkpoint: output up to it may be published."""

    def close(self) -> None:
        """Handles the end of the instance, unless its process is killed."""


class Spout(Component):
    """A source of tuples."""

    def open(self, context: ComponentContext) -> None:
        """Prepares the instance, after its state was restored."""

    def next_tuple(self, out: SpoutCollector) -> Optional[Next]:
        """Emits one or a few tuples.

        Returns ``None`` to be called again, ``wait("100ms")`` to be called later, or ``DONE``. An
        exception fails the attempt of the job.
        """
        raise NotImplementedError

    def ack(self, message: int) -> None:
        """Handles a message all of whose tuples have been processed."""

    def fail(self, message: int) -> None:
        """Handles a message that has failed or timed out. The spout may emit it again."""


class Bolt(Component):
    """A step that processes tuples."""

    def prepare(self, context: ComponentContext) -> None:
        """Prepares the instance, after its state was restored."""

    def execute(self, tuple: Tuple, out: Collector) -> None:  # noqa: A002
        """Processes a tuple. Output is anchored to it.

        The tuple is acked when the method returns, unless it is held. An exception fails it.
        """
        raise NotImplementedError

    def tick(self, out: Collector) -> None:
        """Handles a tick: see ``tick_every``."""

    def finish(self, out: Collector) -> None:
        """Handles the end of the input: emits what is left, and acks held tuples."""


def outputs_of(component: type) -> List[OutputStream]:
    """Returns the streams of a class."""
    declared = getattr(component, "outputs", ())
    name = component.__name__
    if isinstance(declared, str):
        raise invalid(f"the outputs of {name} are a text", f'write a list: outputs = ["{declared}"]')
    if not isinstance(declared, Mapping):
        declared = {DEFAULT_STREAM: declared} if declared else {}
    streams = []
    for stream, fields in declared.items():
        direct = isinstance(fields, Direct)
        named = fields.fields if isinstance(fields, Direct) else fields
        if isinstance(named, str) or not all(isinstance(field, str) for field in named):
            raise invalid(f"the fields of the stream {stream!r} of {name} are a list of names")
        streams.append(OutputStream(stream, list(named), direct))
    return streams


def description_of(component: type) -> Dict[str, Any]:
    """Returns what a topology file needs to know of a class, as plain data."""
    if not (isinstance(component, type) and issubclass(component, (Spout, Bolt))):
        raise invalid(
            f"{component!r} is no spout and no bolt", "derive the class from ardea.topology.Bolt or Spout"
        )
    return {
        "kind": "spout" if issubclass(component, Spout) else "bolt",
        "outputs": [stream._asdict() for stream in outputs_of(component)],
    }
