"""The instance protocol: frames between an instance and the host that started its process.

``docs/instance-protocol.md`` describes the protocol.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from enum import IntEnum
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

#: The version of the protocol.
PROTOCOL = 1

#: The partition of a record without a key.
NO_PARTITION = 0xFFFF

#: The number of partitions of keys.
PARTITIONS = 1024

#: The event time of a record without one.
NO_TIME = -(1 << 63)

#: The sequence of the watermark at the end of the input.
END_OF_TIME = (1 << 63) - 1

#: The length of the payload at which a part of an answer is sent.
PART_BYTES = 1 << 20

#: Flag of RESULT and EMIT: another part follows.
MORE = 1

#: Flag of STATE and RESTORE: the last part.
LAST = 1

_HEAD = struct.Struct("<IBBHQ")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_TIME_AND_PARTITION = struct.Struct("<qH")

#: The maximum length of a payload.
_MAX_BYTES = 32 << 20


class FrameType(IntEnum):
    """The types of frames."""

    HELLO = 1
    CONFIGURE = 2
    RESTORE = 3
    READY = 4
    BATCH = 5
    RESULT = 6
    WATERMARK = 7
    BARRIER = 8
    STATE = 9
    COMMIT = 10
    STOP = 11
    LOG = 12
    HEARTBEAT = 13
    ERROR = 14
    RING = 15
    EMIT = 16
    ACKS = 17
    NEXT = 18
    TICK = 19
    METRIC = 20


class Frame(NamedTuple):
    """A received frame."""

    kind: int
    flags: int
    sequence: int
    payload: bytes

    def json(self) -> Dict[str, Any]:
        """Returns the document of the payload."""
        document = json.loads(self.payload)
        if not isinstance(document, dict):
            raise ProtocolError(f"a document is an object, and not {document!r}")
        return document


class ProtocolError(Exception):
    """A frame of the host that does not follow the protocol."""


class HostGone(Exception):
    """The end of the connection: the host has ended."""


class Connection:
    """The connection of an instance to its host, with blocking reads and writes."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = bytearray()

    @classmethod
    def of_process(cls) -> Connection:
        """Takes the connection on descriptor 0. Input of user code is empty from here on."""
        connected = socket.socket(fileno=os.dup(0))
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        return cls(connected)

    def send(
        self, kind: FrameType, payload: bytes = b"", *, sequence: int = 0, flags: int = 0
    ) -> None:
        """Sends a frame. Raises ``HostGone`` if the host has ended."""
        if len(payload) > _MAX_BYTES:
            raise ValueError(f"{kind.name} with {len(payload)} bytes exceeds {_MAX_BYTES} bytes")
        try:
            self._socket.sendall(_HEAD.pack(len(payload), kind, flags, 0, sequence) + payload)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise HostGone(str(error)) from error

    def send_json(self, kind: FrameType, document: Dict[str, Any]) -> None:
        """Sends a frame with a JSON document."""
        self.send(kind, json.dumps(document).encode())

    def receive(self) -> Optional[Frame]:
        """Returns the next frame; ``None`` if the host is gone."""
        head = self._take(_HEAD.size)
        if head is None:
            return None
        length, kind, flags, _, sequence = _HEAD.unpack(head)
        if length > _MAX_BYTES:
            raise ProtocolError(f"a frame has {length} bytes, and at most {_MAX_BYTES} are allowed")
        payload = self._take(length)
        return None if payload is None else Frame(kind, flags, sequence, payload)

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _take(self, length: int) -> Optional[bytes]:
        received = self._received
        while len(received) < length:
            try:
                piece = self._socket.recv(max(1 << 16, length - len(received)))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        taken = bytes(received[:length])
        del received[:length]
        return taken


class Record(NamedTuple):
    """A record of a batch in a format of rows."""

    partition: int
    value: bytes


class PayloadReader:
    """A reader of the numbers and byte strings of a payload."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def u16(self) -> int:
        """Reads a number of two bytes."""
        return int(self._unpack(_U16)[0])

    def u32(self) -> int:
        """Reads a number of four bytes."""
        return int(self._unpack(_U32)[0])

    def sized(self) -> bytes:
        """Reads a length and as many bytes."""
        length = self.u32()
        start, self._at = self._at, self._at + length
        if self._at > len(self._payload):
            raise ProtocolError("a payload ends too early")
        return self._payload[start : self._at]

    def records(self) -> Iterator[Record]:
        """Reads the records of a BATCH."""
        for _ in range(self.u32()):
            _, partition = self._unpack(_TIME_AND_PARTITION)
            self.sized()
            yield Record(int(partition), self.sized())

    def messages(self) -> Iterator[Tuple[int, bool]]:
        """Reads the message ids of ACKS, with true for an acked one."""
        layout = struct.Struct("<QB")
        for _ in range(self.u32()):
            message, is_acked = self._unpack(layout)
            yield int(message), bool(is_acked)

    def entries(self) -> Iterator[Tuple[int, bytes, bytes]]:
        """Reads the entries of RESTORE: partition, key and value."""
        for _ in range(self.u32()):
            yield self.u16(), self.sized(), self.sized()

    def _unpack(self, layout: struct.Struct) -> Tuple[Any, ...]:
        try:
            read = layout.unpack_from(self._payload, self._at)
        except struct.error as error:
            raise ProtocolError(f"a payload ends too early: {error}") from error
        self._at += layout.size
        return read


def sized(value: bytes) -> bytes:
    """Returns a byte string with its length."""
    return _U32.pack(len(value)) + value


class CountedList:
    """A list of a payload: the number of items, then the items."""

    __slots__ = ("byte_count", "count", "_parts")

    def __init__(self) -> None:
        self.count = 0
        #: The length of the items.
        self.byte_count = 0
        self._parts: List[bytes] = []

    def add(self, *parts: bytes) -> None:
        """Appends an item."""
        self.count += 1
        self._parts.extend(parts)
        self.byte_count += sum(map(len, parts))

    def take(self) -> bytes:
        """Returns the list, and empties it."""
        taken = _U32.pack(self.count) + b"".join(self._parts)
        self.count = self.byte_count = 0
        self._parts = []
        return taken


def state_parts(entries: Iterable[Tuple[int, bytes, bytes]]) -> Iterator[Tuple[bytes, int]]:
    """Returns the payloads of STATE for these entries, with their flags."""
    part = CountedList()
    for partition, key, value in entries:
        part.add(_U16.pack(partition), sized(key), sized(value))
        if part.byte_count >= PART_BYTES:
            yield part.take(), 0
    yield part.take(), LAST


def first_partition(instance: int, instances: int) -> int:
    """Returns the first partition that an instance owns: that of its state without a key."""
    return min(-(-instance * PARTITIONS // max(instances, 1)), PARTITIONS - 1)
