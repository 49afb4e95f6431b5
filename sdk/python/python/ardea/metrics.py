"""Metrics of user code.

>>> from ardea import metrics
>>> refused = metrics.counter("refused")
>>> refused.add(1)
>>> metrics.gauge("temperature").set(21.5)

The host exposes them with the step and the instance, as ``ardea_user_refused_total`` for example. See
``docs/python.md``.
"""

from __future__ import annotations

import math
import re
import threading
import time
from contextvars import ContextVar
from typing import Dict, List, Optional, Tuple, Union

from .errors import invalid
from .instances import Connection, FrameType

#: The interval at which changed metrics are sent.
_SEND_INTERVAL_S = 1.0

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


class InstanceMetrics:
    """The changes by the calls of an instance in the process of the job. For the engine."""

    def __init__(self) -> None:
        # A coroutine of the call may run on another thread.
        self._lock = threading.Lock()
        self._changes: Dict[str, Tuple[str, float]] = {}

    def enter(self) -> None:
        """Begins a call: changes belong to this instance."""
        _CURRENT.set(self)

    def leave(self) -> List[Tuple[str, str, float]]:
        """Ends a call. Returns its changes: name, kind and value."""
        _CURRENT.set(None)
        with self._lock:
            changes, self._changes = self._changes, {}
        return [(name, kind, value) for name, (kind, value) in changes.items()]

    def add(self, name: str, value: float) -> None:
        """Adds to a counter."""
        with self._lock:
            _, before = self._changes.get(name, ("counter", 0))
            self._changes[name] = ("counter", before + value)

    def set(self, name: str, value: float) -> None:
        """Sets a gauge."""
        with self._lock:
            self._changes[name] = ("gauge", value)


#: The instance that calls, in the process of the job.
_CURRENT: ContextVar[Optional[InstanceMetrics]] = ContextVar("ardea_instance", default=None)


class Counter:
    """A sum that only grows."""

    kind = "counter"

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._increase: float = 0

    def add(self, value: float = 1) -> None:
        """Adds to the sum."""
        if not (0 <= value < math.inf):
            raise ValueError(f"a counter only grows, and cannot add {value}: use a gauge")
        instance = _CURRENT.get()
        if instance is not None:
            instance.add(self._name, value)
            return
        with self._lock:
            self._increase += value

    def take(self) -> List[float]:
        """Takes the increase that was not sent, if there is one. For the engine."""
        with self._lock:
            increase, self._increase = self._increase, 0
        return [increase] if increase else []


class Gauge:
    """A value that may grow and shrink."""

    kind = "gauge"

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed: List[float] = []

    def set(self, value: float) -> None:
        """Sets the value."""
        if not math.isfinite(value):
            raise ValueError(f"the value of a gauge is a number, and not {value}")
        instance = _CURRENT.get()
        if instance is not None:
            instance.set(self._name, float(value))
            return
        self._changed = [float(value)]

    def take(self) -> List[float]:
        """Takes the value if it was set since the last call. For the engine."""
        changed, self._changed = self._changed, []
        return changed


_METRICS: Dict[str, Union[Counter, Gauge]] = {}
_LOCK = threading.Lock()


def counter(name: str) -> Counter:
    """Returns the counter with this name: lower-case letters, digits and underscores."""
    found = _metric(name, Counter)
    assert isinstance(found, Counter)
    return found


def gauge(name: str) -> Gauge:
    """Returns the gauge with this name: lower-case letters, digits and underscores."""
    found = _metric(name, Gauge)
    assert isinstance(found, Gauge)
    return found


def _metric(name: str, kind: Union[type[Counter], type[Gauge]]) -> Union[Counter, Gauge]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{name!r} is no name of a metric", "use lower-case letters, digits and underscores"
        )
    with _LOCK:
        found = _METRICS.setdefault(name, kind(name))
    if not isinstance(found, kind):
        raise invalid(f"the metric {name!r} is a {found.kind}, and no {kind.kind}")
    return found


def take_changes() -> List[Tuple[str, str, float]]:
    """Takes the changes since the last call: name, kind and value. For the engine."""
    return [(name, it.kind, value) for name, it in list(_METRICS.items()) for value in it.take()]


class _Schedule:
    """The time of the next sending."""

    next_at = 0.0


def send_if_due(connection: Connection) -> None:
    """Sends changed metrics to the host, at most once a second. For the engine."""
    if _METRICS and time.monotonic() >= _Schedule.next_at:
        send(connection)


def send(connection: Connection) -> None:
    """Sends changed metrics to the host. For the engine."""
    _Schedule.next_at = time.monotonic() + _SEND_INTERVAL_S
    for name, kind, value in take_changes():
        connection.send_json(FrameType.METRIC, {"name": name, "kind": kind, "value": value})
