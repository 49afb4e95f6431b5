"""Tests of functions and jobs, under pytest or another tool.

``KeyedTest`` drives a function with state and timers by records and watermarks, without an engine.
``run_steps`` runs steps of a job on given records.
"""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .keyed import (
    CLEAR,
    CLEAR_PROCESSING,
    CLEAR_STATE,
    EMIT,
    SET,
    SET_PROCESSING,
    Context,
    KeyedFunction,
    ProcessFunction,
)
from .pipelines import Pipeline
from .schemas import SchemaLike
from .sources import Items
from .streams import Stream
from .times import micros_of, timestamp_of

#: A time: a ``datetime``, or seconds since 1970.
Time = Union[datetime, float]

#: An emitted record with its event time.
Emitted = Tuple[Any, datetime]


class KeyedTest:
    """Drives a function with state and timers, as ``key_by(..).process(function)`` does.

    >>> def count(ctx, record):
    ...     ctx.state = (ctx.state or 0) + 1
    ...     ctx.emit((ctx.key, ctx.state))
    >>> test = KeyedTest(count, key="user")
    >>> test.record({"user": "ann"}, time=1)
    >>> test.record({"user": "ann"}, time=2)
    >>> test.take()
    [('ann', 1), ('ann', 2)]
    """

    def __init__(self, function: ProcessFunction, *, key: Union[str, Callable[[Any], Any]]) -> None:
        self._key: Callable[[Any], Any] = (
            (lambda record: record[key]) if isinstance(key, str) else key
        )
        self._function = KeyedFunction(
            function, reads_objects=False, writes_objects=False, stops=False, keys=[]
        )
        self._kept: Dict[Any, List[Any]] = {}
        self._timers: Dict[Tuple[int, Any], None] = {}
        self._processing: Dict[Tuple[int, Any], None] = {}
        self._now = 0
        self._emitted: List[Emitted] = []

    def record(self, record: Any, *, time: Time = 0) -> None:
        """Handles a record. An exception of the function is raised."""
        key = self._key(record)
        kept = self._kept.setdefault(key, [key, None])
        micros = micros_of(timestamp_of(time))
        self._call(key, kept, micros, lambda ctx: self._function.call_record(ctx, record), False)

    def watermark(self, time: Time) -> None:
        """Advances the watermark: timers up to this time fire, in their order."""
        limit = micros_of(timestamp_of(time))
        self._fire(self._timers, limit, False)

    def advance(self, delay: timedelta) -> None:
        """Advances processing time: due timers fire."""
        self._now += delay // timedelta(microseconds=1)
        self._fire(self._processing, self._now, True)

    def restore(self) -> None:
        """Writes the state of all keys and reads it back, as after a failure."""
        self._kept = {key: pickle.loads(pickle.dumps(kept)) for key, kept in self._kept.items()}

    def state(self, key: Any) -> Any:
        """Returns the state of a key; None if there is none."""
        kept = self._kept.get(key)
        return None if kept is None else copy.deepcopy(kept[1])

    def take(self) -> List[Any]:
        """Takes the emitted records."""
        return [record for record, _ in self.take_timed()]

    def take_timed(self) -> List[Emitted]:
        """Takes the emitted records with their event times."""
        emitted, self._emitted = self._emitted, []
        return emitted

    def _fire(self, timers: Dict[Tuple[int, Any], None], limit: int, is_processing: bool) -> None:
        while True:
            due = [timer for timer in timers if timer[0] <= limit]
            if not due:
                return
            micros, key = min(due, key=lambda timer: timer[0])
            del timers[(micros, key)]
            kept = self._kept.get(key)
            if kept is not None:
                self._call(key, kept, micros, self._function.call_timer, is_processing)

    def _call(
        self,
        key: Any,
        kept: List[Any],
        micros: int,
        call: Callable[[Context], Any],
        is_processing: bool,
    ) -> None:
        context = Context(False)
        context.begin(kept, micros, is_processing)
        call(context)
        for kind, value, time in context.actions():
            if kind == EMIT:
                at = micros if time is None else time
                self._emitted.append((value, timestamp_of(at / 1_000_000)))
            elif kind == SET and time is not None:
                self._timers[(time, key)] = None
            elif kind == CLEAR and time is not None:
                self._timers.pop((time, key), None)
            elif kind == SET_PROCESSING and time is not None:
                self._processing[(self._now + time, key)] = None
            elif kind == CLEAR_PROCESSING:
                self._forget(self._processing, key)
            elif kind == CLEAR_STATE:
                self._kept.pop(key, None)
                self._forget(self._timers, key)
                self._forget(self._processing, key)

    @staticmethod
    def _forget(timers: Dict[Tuple[int, Any], None], key: Any) -> None:
        for timer in [timer for timer in timers if timer[1] == key]:
            del timers[timer]


def run_steps(
    steps: Callable[[Stream], Stream],
    records: Iterable[Any],
    *,
    schema: Optional[SchemaLike] = None,
    time: Optional[Callable[[Any], Time]] = None,
) -> List[Any]:
    """Runs steps of a job on records, and returns the results.

    Each record is a batch of its own. With ``time`` the records have event times, and the watermark
    follows each of them, so that an older record is late.

    >>> run_steps(lambda numbers: numbers.map(lambda n: n + 1), [1, 2])
    [2, 3]
    """
    pipeline = Pipeline("test")
    stream = pipeline.read(Items(records, schema, batch_rows=1))
    if time is not None:
        stream = stream.with_timestamps(time, max_ahead=None)
    results = steps(stream).collect()
    pipeline.run(threads=1, quiet=True)
    return results.rows()
