"""The receivers of the output of spouts and bolts."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from ..instances import (
    MORE,
    NO_TIME,
    PART_BYTES,
    Connection,
    CountedList,
    FrameType,
    sized,
)
from .tuples import Tuple, TupleAddress
from .values import encoded, plain

if TYPE_CHECKING:
    from .components import OutputStream

_NO_ANCHORS = struct.pack("<I", 0)
_MESSAGE_ANCHOR = struct.Struct("<IQI")
_TUPLE_ANCHOR = struct.Struct("<QI")
_ROW_AND_TIME = struct.Struct("<Iq")
_ADDRESS_AND_OUTCOME = struct.Struct("<QIB")
_WAIT = struct.Struct("<i")
_COUNT = struct.Struct("<I")

_SETTLED = "a tuple was acked or failed before"

#: The most bytes of the reason of a failure.
_REASON_BYTES = 64 << 10

_MESSAGES = range(1 << 64)


class Streams:
    """The streams that an instance may emit, and the documents of their tuples."""

    def __init__(self, streams: Sequence[OutputStream]) -> None:
        self._streams = list(streams)
        self._indexes: Dict[str, int] = {it.stream: at for at, it in enumerate(streams)}

    def document(self, name: Optional[str], instance: Optional[int], values: Sequence[Any]) -> bytes:
        """Returns the document of a tuple."""
        index = 0 if name is None and self._streams else self._indexes.get(name or "")
        if index is None:
            known = ", ".join(self._indexes) or "none"
            raise ValueError(f"the component has no stream {name or 'default'!r}: its outputs are {known}")
        stream = self._streams[index]
        if len(values) != len(stream.fields):
            fields = ", ".join(stream.fields)
            raise ValueError(
                f"the stream {stream.stream!r} has the fields {fields}, and {len(values)} values were"
                " emitted"
            )
        if stream.direct != (instance is not None):
            calls = "emit_direct" if stream.direct else "emit or emit_to"
            raise ValueError(f"tuples of the stream {stream.stream!r} are emitted with {calls}")
        if instance is None:
            return encoded([index, *plain(values)])
        return encoded({"stream": index, "instance": instance, "values": plain(values)})


class EmittedTuples:
    """The tuples of EMIT. They are sent in parts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tuples = CountedList()
        self._sequence = 0
        self._is_deferred = False
        #: Parts that wait for the end.
        self._parts: List[bytes] = []
        #: The number of tuples since ``begin``.
        self.count = 0

    def begin(self, sequence: int, *, is_deferred: bool = False) -> None:
        """Begins the answer to the frame with this sequence. Nothing is sent before the end if it
        ``is_deferred``."""
        self._sequence = sequence
        self._is_deferred = is_deferred
        self.count = 0

    def add(self, *parts: bytes) -> None:
        """Appends a tuple."""
        self._tuples.add(*parts)
        self.count += 1
        if self._tuples.byte_count >= PART_BYTES:
            part = self._tuples.take()
            if self._is_deferred:
                self._parts.append(part)
            else:
                self._send(part, 0, MORE)

    def end(self, wait_ms: int = 0, *, flags: int = 0) -> None:
        """Sends the last part, with these flags."""
        for part in self._parts:
            self._send(part, 0, MORE)
        self._parts = []
        self._send(self._tuples.take(), wait_ms, flags)

    def end_if_any(self, *, flags: int = 0) -> None:
        """Sends the last part if there is one."""
        if self._tuples.count or self._parts:
            self.end(flags=flags)

    def _send(self, part: bytes, wait_ms: int, flags: int) -> None:
        payload = part + _WAIT.pack(wait_ms)
        self._connection.send(FrameType.EMIT, payload, sequence=self._sequence, flags=flags)


class SpoutCollector:
    """The receiver of the tuples of a spout."""

    def __init__(self, streams: Streams, emitted: EmittedTuples) -> None:
        self._streams = streams
        self._emitted = emitted

    def emit(self, *values: Any, message: Optional[int] = None) -> None:
        """Emits a tuple to the first stream.

        With ``message``, an integer that the spout chooses, the tuple is tracked: ``ack`` or ``fail``
        is called with it later, if the topology has acknowledgements.
        """
        self._add(None, None, values, message)

    def emit_to(self, stream: str, *values: Any, message: Optional[int] = None) -> None:
        """Emits a tuple to a stream."""
        self._add(stream, None, values, message)

    def emit_direct(
        self, instance: int, stream: str, *values: Any, message: Optional[int] = None
    ) -> None:
        """Emits a tuple of a direct stream to an instance of each subscriber."""
        self._add(stream, instance, values, message)

    def _add(
        self, stream: Optional[str], instance: Optional[int], values: Sequence[Any], message: Optional[int]
    ) -> None:
        anchors = _NO_ANCHORS
        if message is not None:
            if not isinstance(message, int) or message not in _MESSAGES:
                raise ValueError(f"the message {message!r} is no integer from 0 to 2^64 - 1")
            anchors = _MESSAGE_ANCHOR.pack(1, message, 0)
        self._emitted.add(anchors, sized(self._streams.document(stream, instance, values)))


class HeldTuple:
    """A tuple that is neither acked nor failed until it is passed to ``ack`` or ``fail``."""

    __slots__ = ("address", "is_anchor", "is_settled")

    def __init__(self, address: TupleAddress) -> None:
        #: The address of the tuple. Internal.
        self.address = address
        self.is_settled = False
        #: True if output is anchored to the tuple. Internal.
        self.is_anchor = False


class Collector:
    """The receiver of the output of a bolt, and of acks and failures of its tuples.

    Output of ``execute`` is anchored to its tuple: if a tuple that is derived from it fails, so does
    the message of the spout.
    """

    def __init__(self, streams: Streams, connection: Connection) -> None:
        self._streams = streams
        self._connection = connection
        self._emitted = EmittedTuples(connection)
        #: The acks and failures of held tuples that are not sent yet.
        self._outcomes: Dict[TupleAddress, bytes] = {}
        self._results = CountedList()
        self._failures = CountedList()
        self._held: Dict[int, HeldTuple] = {}
        self._sequence = 0
        self._row: Optional[int] = None
        self._anchors: Optional[bytes] = None

    def emit(self, *values: Any) -> None:
        """Emits a tuple to the first stream."""
        self._add(None, None, values)

    def emit_to(self, stream: str, *values: Any) -> None:
        """Emits a tuple to a stream."""
        self._add(stream, None, values)

    def emit_direct(self, instance: int, stream: str, *values: Any) -> None:
        """Emits a tuple of a direct stream to an instance of each subscriber."""
        self._add(stream, instance, values)

    def hold(self, tuple: Tuple) -> HeldTuple:  # noqa: A002
        """Holds the tuple of ``execute``: it is not acked when the method returns."""
        if tuple.address != (self._sequence, self._row):
            raise ValueError("a bolt holds the tuple that it processes, and no earlier one")
        return self._held.setdefault(tuple.address.row, HeldTuple(tuple.address))

    def ack(self, held: HeldTuple) -> None:
        """Acks a held tuple."""
        self._settle(held, True, "")

    def fail(self, held: HeldTuple, reason: str) -> None:
        """Fails a held tuple."""
        self._settle(held, False, reason)

    @contextmanager
    def tied_to(self, held: Union[HeldTuple, Iterable[HeldTuple]]) -> Iterator[None]:
        """Anchors the output of a ``with`` block to held tuples, and to no other."""
        tuples = [held] if isinstance(held, HeldTuple) else list(held)
        if any(each.is_settled for each in tuples):
            raise ValueError(_SETTLED)
        for each in tuples:
            each.is_anchor = True
        before = self._anchors
        addresses = [_TUPLE_ANCHOR.pack(*each.address) for each in tuples]
        self._anchors = _COUNT.pack(len(addresses)) + b"".join(addresses)
        try:
            yield
        finally:
            self._anchors = before

    def _settle(self, held: HeldTuple, is_acked: bool, reason: str) -> None:
        if held.is_settled:
            raise ValueError(_SETTLED)
        held.is_settled = True
        outcome = _ADDRESS_AND_OUTCOME.pack(*held.address, is_acked)
        self._outcomes[held.address] = outcome + _text(reason)

    def _add(self, stream: Optional[str], instance: Optional[int], values: Sequence[Any]) -> None:
        document = sized(self._streams.document(stream, instance, values))
        if self._anchors is not None:
            self._emitted.add(self._anchors, document)
        elif self._row is None:
            self._emitted.add(_NO_ANCHORS, document)
        else:
            self._results.add(_ROW_AND_TIME.pack(self._row, NO_TIME), document)
            self._send_large_results()

    # For the engine

    def begin_batch(self, sequence: int) -> None:
        """Begins the answer to a batch."""
        self._sequence = sequence
        # The host must know first which tuples are held.
        self._emitted.begin(0, is_deferred=True)

    def begin_tuple(self, row: int) -> None:
        """Begins the processing of a tuple: output is anchored to it."""
        self._row = row

    def end_tuple(self, failure: Optional[str]) -> None:
        """Ends the processing of a tuple. A failed one is not held."""
        if failure is not None and self._row is not None:
            self._fail_row(self._row, failure)
        self._row = None
        self._anchors = None

    def _fail_row(self, row: int, failure: str) -> None:
        held = self._held.get(row)
        if held is not None:
            # An ack before the exception does not count.
            self._outcomes.pop(held.address, None)
            held.is_settled = False
            if held.is_anchor:
                # It fails after the output that is anchored to it.
                self.fail(held, failure)
                return
            held.is_settled = True
            del self._held[row]
        self._failures.add(_COUNT.pack(row), _text(failure))
        self._send_large_results()

    def end_batch(self) -> None:
        """Sends the answer to a batch."""
        self._send_results(0)
        self._emitted.end_if_any()
        self._send_outcomes()

    def begin_answer(self, sequence: int) -> None:
        """Begins the answer to a tick, or to the end of the input."""
        self._emitted.begin(sequence)

    def end_tick(self) -> None:
        """Sends the answer to a tick."""
        self._emitted.end()
        self._send_outcomes()

    def end_finish(self) -> None:
        """Sends the output of the end of the input, before its watermark."""
        self._emitted.end_if_any(flags=MORE)
        self._send_outcomes()

    def _send_large_results(self) -> None:
        """Sends a part of the answer if it is large."""
        if self._results.byte_count + self._failures.byte_count >= PART_BYTES:
            self._send_results(MORE)

    def _send_results(self, flags: int) -> None:
        held = CountedList()
        if flags != MORE:
            for row in self._held:
                held.add(_COUNT.pack(row))
            self._held = {}
        payload = self._results.take() + self._failures.take() + held.take()
        self._connection.send(FrameType.RESULT, payload, sequence=self._sequence, flags=flags)

    def _send_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, {}
        part = CountedList()
        for outcome in outcomes.values():
            part.add(outcome)
            if part.byte_count >= PART_BYTES:
                self._connection.send(FrameType.ACKS, part.take())
        if part.count:
            self._connection.send(FrameType.ACKS, part.take())


def _text(text: str) -> bytes:
    """Returns the reason of a failure with its length."""
    encoded = text.encode("utf-8", "replace")[:_REASON_BYTES]
    return sized(encoded.decode("utf-8", "ignore").encode())
