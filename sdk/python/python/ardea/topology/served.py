"""Components served to a host: the loop of their process."""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import Any, Dict, List, Optional, Type

from .. import metrics
from ..instances import (
    END_OF_TIME,
    LAST,
    PROTOCOL,
    Connection,
    Frame,
    FrameType,
    HostGone,
    PayloadReader,
    ProtocolError,
    first_partition,
    state_parts,
)
from ..rows import reason_of
from .collectors import Collector, EmittedTuples, SpoutCollector, Streams
from .components import Bolt, Component, ComponentContext, Spout, outputs_of
from .state import JobFailure, State
from .tuples import Input, Tuple, TupleAddress
from .values import decoded

#: The interval at which a batch that takes long asks its host for more time.
_HEARTBEAT_S = 5.0

#: The time after which a spout's answer is sent with the tuples that it has.
_ANSWER_S = 0.02

#: The delay after a call of a spout that has emitted nothing.
_EMPTY_WAIT_MS = 1

_LONGEST_WAIT_MS = (1 << 31) - 1

#: The most characters of a traceback in the reason of a failed tuple.
_TRACEBACK_CHARACTERS = 4000


class ServedComponent:
    """An instance of a component, and its connection to the host."""

    role = ""

    def __init__(self, component: Type[Any], connection: Connection) -> None:
        self._class = component
        self._connection = connection
        self._streams = Streams(outputs_of(component))
        self._state = State()

    def serve(self) -> bool:
        """Serves the instance until the host stops it or is gone. Returns false if it has failed."""
        connection = self._connection
        connection.send_json(FrameType.HELLO, self._hello())
        try:
            while True:
                frame = connection.receive()
                if frame is None:
                    return True
                if frame.kind == FrameType.STOP:
                    self._component().close()
                    metrics.send(connection)
                    return True
                self._handle(frame)
                metrics.send_if_due(connection)
        except HostGone:
            return True
        except Exception as error:
            traceback.print_exc()
            with contextlib.suppress(HostGone):
                connection.send_json(FrameType.ERROR, _failure(error))
            return False

    def _hello(self) -> Dict[str, Any]:
        return {
            "protocol": {"min": PROTOCOL, "max": PROTOCOL},
            "language": "python",
            "formats": ["json"],
            "roles": [self.role],
            "state": bool(self._class.has_state),
        }

    def _handle(self, frame: Frame) -> None:
        kind, connection = frame.kind, self._connection
        if kind == FrameType.HELLO:
            return
        if kind == FrameType.CONFIGURE:
            configuration = frame.json()
            self._configure(configuration)
            if not configuration.get("restore"):
                self._component()
            connection.send(FrameType.READY)
        elif kind == FrameType.RESTORE:
            for entry in PayloadReader(frame.payload).entries():
                self._state.restore(*entry)
            if frame.flags & LAST:
                self._component()
        elif kind == FrameType.BARRIER:
            for payload, flags in state_parts(self._state.saved()):
                connection.send(FrameType.STATE, payload, sequence=frame.sequence, flags=flags)
        elif kind == FrameType.COMMIT:
            self._component().committed(frame.sequence)
        else:
            raise ProtocolError(f"the host sent a frame of the type {kind} to a {self.role}")

    def _configure(self, configuration: Dict[str, Any]) -> None:
        raise NotImplementedError

    def _component(self) -> Component:
        raise NotImplementedError

    def _create(self, configuration: Dict[str, Any]) -> Any:
        """Returns the instance of the class, with its settings and its state."""
        role = configuration.get("role", self.role)
        if role != self.role:
            name = self._class.__name__
            raise JobFailure(f"{name} is a {self.role}, and the topology has it as a {role}")
        settings = configuration.get("parameters") or {}
        try:
            created = self._class(**settings)
        except TypeError as error:
            names = ", ".join(settings) or "none"
            what = f"{self._class.__name__} cannot be created with the settings {names}"
            raise JobFailure(f"{what}: {error}") from error
        instance, instances = configuration.get("instance", 0), configuration.get("instances", 1)
        self._state.open(first_partition(instance, instances))
        created.state = self._state
        return created


class ServedSpout(ServedComponent):
    """A spout that is served to a host."""

    role = "spout"

    def __init__(self, component: Type[Spout], connection: Connection) -> None:
        super().__init__(component, connection)
        self._emitted = EmittedTuples(connection)
        self._out = SpoutCollector(self._streams, self._emitted)
        self._spout: Optional[Spout] = None
        self._context: Optional[ComponentContext] = None

    def _configure(self, configuration: Dict[str, Any]) -> None:
        self._spout = self._create(configuration)
        self._context = ComponentContext(configuration)

    def _component(self) -> Spout:
        """Returns the spout. It is opened by the first call, after its state was restored."""
        if self._spout is None:
            raise ProtocolError("the host has not configured the spout")
        if self._context is not None:
            context, self._context = self._context, None
            self._spout.open(context)
        return self._spout

    def _handle(self, frame: Frame) -> None:
        if frame.kind == FrameType.NEXT:
            limit = PayloadReader(frame.payload).u32()
            self._emitted.begin(frame.sequence)
            self._emitted.end(self._call(limit))
        elif frame.kind == FrameType.ACKS:
            spout = self._component()
            for message, is_acked in PayloadReader(frame.payload).messages():
                (spout.ack if is_acked else spout.fail)(message)
        else:
            super()._handle(frame)

    def _call(self, limit: int) -> int:
        """Calls the spout for up to ``limit`` tuples. Returns the wait of EMIT."""
        spout, out, emitted = self._component(), self._out, self._emitted
        deadline = time.monotonic() + _ANSWER_S
        while emitted.count < limit:
            before = emitted.count
            answer = spout.next_tuple(out)
            if answer is not None:
                return _wait_ms(answer.wait_micros)
            if emitted.count == before:
                return _EMPTY_WAIT_MS
            if time.monotonic() >= deadline:
                break
        return 0


class ServedBolt(ServedComponent):
    """A bolt that is served to a host."""

    role = "bolt"

    def __init__(self, component: Type[Bolt], connection: Connection) -> None:
        super().__init__(component, connection)
        self._out = Collector(self._streams, connection)
        self._inputs: List[Input] = []
        self._bolt: Optional[Bolt] = None
        self._context: Optional[ComponentContext] = None

    def _configure(self, configuration: Dict[str, Any]) -> None:
        self._bolt = self._create(configuration)
        self._inputs = [
            Input(it["component"], it["stream"], it["fields"]) for it in configuration.get("inputs", [])
        ]
        self._context = ComponentContext(configuration)

    def _component(self) -> Bolt:
        """Returns the bolt. It is prepared by the first call, after its state was restored."""
        if self._bolt is None:
            raise ProtocolError("the host has not configured the bolt")
        if self._context is not None:
            context, self._context = self._context, None
            self._bolt.prepare(context)
        return self._bolt

    def _handle(self, frame: Frame) -> None:
        out, sequence = self._out, frame.sequence
        if frame.kind == FrameType.BATCH:
            self._execute(frame)
        elif frame.kind == FrameType.TICK:
            out.begin_answer(sequence)
            self._component().tick(out)
            out.end_tick()
        elif frame.kind == FrameType.WATERMARK:
            if sequence == END_OF_TIME:
                out.begin_answer(sequence)
                self._component().finish(out)
                out.end_finish()
            self._connection.send(FrameType.WATERMARK, sequence=sequence)
        else:
            super()._handle(frame)

    def _execute(self, frame: Frame) -> None:
        """Executes the tuples of a batch."""
        bolt, out, state = self._component(), self._out, self._state
        out.begin_batch(frame.sequence)
        heartbeat_at = time.monotonic() + _HEARTBEAT_S
        for row, record in enumerate(PayloadReader(frame.payload).records()):
            index, *values = decoded(record.value)
            received = Tuple(self._inputs[index], values, TupleAddress(frame.sequence, row))
            out.begin_tuple(row)
            state.enter(record.partition)
            failure = None
            try:
                bolt.execute(received, out)
            except (JobFailure, HostGone):
                raise
            except Exception as error:
                failure = _reason_with_traceback(error)
            state.leave()
            out.end_tuple(failure)
            if time.monotonic() >= heartbeat_at:
                heartbeat_at = time.monotonic() + _HEARTBEAT_S
                self._connection.send(FrameType.HEARTBEAT)
        out.end_batch()


def served(component: Type[Component], connection: Connection) -> ServedComponent:
    """Returns the server of a class."""
    if issubclass(component, Spout):
        return ServedSpout(component, connection)
    if issubclass(component, Bolt):
        return ServedBolt(component, connection)
    raise TypeError(f"{component!r} is no spout and no bolt")


def _wait_ms(micros: int) -> int:
    """Returns the wait of EMIT: at least a millisecond, if there is one."""
    return -1 if micros < 0 else min(-(-micros // 1000), _LONGEST_WAIT_MS)


def _reason_with_traceback(error: BaseException) -> str:
    """Returns an exception in a line, and its traceback in the lines below."""
    frames = "".join(traceback.format_tb(error.__traceback__)[1:]).rstrip()
    if len(frames) > _TRACEBACK_CHARACTERS:
        frames = "…" + frames[-_TRACEBACK_CHARACTERS:]
    return f"{reason_of(error)}\n{frames}" if frames else reason_of(error)


def _failure(error: BaseException) -> Dict[str, Any]:
    """Returns the document of ERROR."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {"message": reason_of(error), "traceback": "".join(lines)}
