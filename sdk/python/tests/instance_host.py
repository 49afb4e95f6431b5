"""A host of the instance protocol, for tests of instances."""

import json
import socket
import struct
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from ardea.instances import LAST, MORE, NO_PARTITION, NO_TIME, Connection, Frame, FrameType
from ardea.topology.served import served

#: A limit that is long enough for any machine.
TIMEOUT_S = 60.0


class Result(NamedTuple):
    """The answer to a batch."""

    outputs: List[Tuple[int, Any]]
    failures: Dict[int, str]
    held: List[int]


class Emitted(NamedTuple):
    """A tuple of EMIT."""

    anchors: List[Tuple[int, int]]
    document: Any


class Reader:
    """A reader of payloads of instances."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def number(self, layout: str) -> int:
        (number,) = struct.unpack_from("<" + layout, self._payload, self._at)
        self._at += struct.calcsize("<" + layout)
        return int(number)

    def sized(self) -> bytes:
        length = self.number("I")
        self._at += length
        return self._payload[self._at - length : self._at]

    def end(self) -> None:
        assert self._at == len(self._payload)


class Host:
    """The host of a component, which runs in a thread of this process."""

    def __init__(self, component: Type[Any], **configuration: Any) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(TIMEOUT_S)
        self._connection = Connection(ours)
        self.has_ended_well: Optional[bool] = None

        def serve() -> None:
            self.has_ended_well = served(component, Connection(theirs)).serve()
            theirs.close()

        self._thread = threading.Thread(target=serve)
        self._thread.start()
        self.hello = self.receive(FrameType.HELLO).json()
        self._connection.send_json(FrameType.HELLO, {"protocol": {"min": 1, "max": 1}})
        self._connection.send_json(
            FrameType.CONFIGURE, {"job": "test", "step": "tested", "instance": 0, "instances": 1, **configuration}
        )

    def ready(self) -> "Host":
        self.receive(FrameType.READY)
        return self

    def send(self, kind: FrameType, payload: bytes = b"", sequence: int = 0, flags: int = 0) -> None:
        self._connection.send(kind, payload, sequence=sequence, flags=flags)

    def receive(self, kind: FrameType) -> Frame:
        while True:
            frame = self._connection.receive()
            assert frame is not None, "the instance has ended"
            if frame.kind == kind:
                return frame
            assert frame.kind == FrameType.METRIC, f"{FrameType(frame.kind).name}: {frame.payload!r}"

    def failure(self) -> Dict[str, Any]:
        """Returns the document of ERROR, after which the instance ends."""
        failure = self.receive(FrameType.ERROR).json()
        self._thread.join(TIMEOUT_S)
        assert self.has_ended_well is False
        return failure

    def batch(self, sequence: int, records: Sequence[Any], partitions: Sequence[int] = ()) -> None:
        payload = struct.pack("<I", len(records))
        for row, record in enumerate(records):
            value = json.dumps(record).encode()
            partition = partitions[row] if partitions else NO_PARTITION
            payload += struct.pack("<qHII", NO_TIME, partition, 0, len(value)) + value
        self.send(FrameType.BATCH, payload, sequence)

    def result(self, sequence: int) -> Result:
        result = Result([], {}, [])
        while True:
            frame = self.receive(FrameType.RESULT)
            assert frame.sequence == sequence
            reader = Reader(frame.payload)
            for _ in range(reader.number("I")):
                row, _ = reader.number("I"), reader.number("q")
                result.outputs.append((row, json.loads(reader.sized())))
            for _ in range(reader.number("I")):
                row = reader.number("I")
                result.failures[row] = reader.sized().decode()
            result.held.extend(reader.number("I") for _ in range(reader.number("I")))
            reader.end()
            if not frame.flags & MORE:
                return result

    def execute(self, sequence: int, records: Sequence[Any], partitions: Sequence[int] = ()) -> Result:
        self.batch(sequence, records, partitions)
        return self.result(sequence)

    def emitted(self, sequence: int, last_flags: int = 0) -> Tuple[List[Emitted], int]:
        """Returns the tuples of EMIT, and the wait."""
        emitted: List[Emitted] = []
        while True:
            frame = self.receive(FrameType.EMIT)
            assert frame.sequence == sequence
            reader = Reader(frame.payload)
            for _ in range(reader.number("I")):
                anchors = [(reader.number("Q"), reader.number("I")) for _ in range(reader.number("I"))]
                emitted.append(Emitted(anchors, json.loads(reader.sized())))
            wait_ms = reader.number("i")
            reader.end()
            if frame.flags == last_flags:
                return emitted, wait_ms

    def next(self, sequence: int, limit: int = 100) -> Tuple[List[Emitted], int]:
        self.send(FrameType.NEXT, struct.pack("<I", limit), sequence)
        return self.emitted(sequence)

    def acks(self, *messages: Tuple[int, bool]) -> None:
        payload = struct.pack("<I", len(messages))
        for message, is_acked in messages:
            payload += struct.pack("<QB", message, is_acked)
        self.send(FrameType.ACKS, payload)

    def outcomes(self) -> List[Tuple[int, int, bool, str]]:
        """Returns the tuples of ACKS: batch, row, true for an acked one, and the reason."""
        reader = Reader(self.receive(FrameType.ACKS).payload)
        count = reader.number("I")
        outcomes = [
            (reader.number("Q"), reader.number("I"), bool(reader.number("B")), reader.sized().decode())
            for _ in range(count)
        ]
        reader.end()
        return outcomes

    def state(self, epoch: int) -> List[Tuple[int, bytes, bytes]]:
        """Returns the entries at a barrier."""
        self.send(FrameType.BARRIER, sequence=epoch)
        entries: List[Tuple[int, bytes, bytes]] = []
        while True:
            frame = self.receive(FrameType.STATE)
            assert frame.sequence == epoch
            reader = Reader(frame.payload)
            for _ in range(reader.number("I")):
                entries.append((reader.number("H"), reader.sized(), reader.sized()))
            if frame.flags & LAST:
                return entries

    def restore(self, entries: Sequence[Tuple[int, bytes, bytes]]) -> None:
        payload = struct.pack("<I", len(entries))
        for partition, key, value in entries:
            payload += struct.pack("<HI", partition, len(key)) + key
            payload += struct.pack("<I", len(value)) + value
        self.send(FrameType.RESTORE, payload, flags=LAST)

    def stop(self) -> None:
        """Stops the instance, which must end well."""
        self.send(FrameType.STOP)
        self._thread.join(TIMEOUT_S)
        assert self.has_ended_well is True

    def leave(self) -> None:
        """Ends the connection, as the end of the host does."""
        self._connection.close()
        self._thread.join(TIMEOUT_S)
        assert self.has_ended_well is True
