"""The state and timers of a function with state in a process of its own."""

from __future__ import annotations

import heapq
import pickle
from itertools import count
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from .errors import RecordFailure, invalid
from .keyed import CLEAR, CLEAR_STATE, EMIT, SET, SET_PROCESSING, Action, KeyedFunction

#: Emitted records: the values, the row of each, its event time, and the failed rows with reasons.
Results = Tuple[List[Any], List[int], List[int], List[Tuple[int, str]]]

#: The watermark at the end of the input.
_END = (1 << 63) - 1

#: The number of results after which a call for timers returns.
_RESULTS_PER_CALL = 4096

# The kinds of events, in the order of those at the same time.
_TIMER, _EXPIRY = range(2)


class _Entry:
    """The state of a key."""

    __slots__ = ("expiry_at", "kept", "partition", "timers", "used")

    def __init__(self, kept: Optional[List[Any]], partition: int) -> None:
        #: The key and the value of the function, as ``KeyedFunction`` returns them.
        self.kept = kept
        self.partition = partition
        #: The times of its timers.
        self.timers: Set[int] = set()
        #: The latest use, if there is a time-to-live.
        self.used: Optional[int] = None
        #: The time of its expiry event. Other ones are of a removed state of the key.
        self.expiry_at: Optional[int] = None


class KeyedInstance:
    """An instance of a function with state: its keys, their state and their timers.

    Timers in event time fire in the order of their times. A key that no record and no timer has used
    for ``ttl_micros`` of event time is removed. The states are those of the operator in Rust.
    """

    def __init__(self, function: KeyedFunction, ttl_micros: Optional[int]) -> None:
        self._function = function
        self._ttl = ttl_micros
        self._entries: Dict[Any, _Entry] = {}
        self._events: List[Tuple[int, int, int, Any]] = []
        self._numbers = count()
        self._watermark = -(1 << 63)

    def process(self, rows: List[Any], times: List[int], partitions: List[int]) -> Results:
        """Handles the records of a batch."""
        values: List[Any] = []
        value_rows: List[int] = []
        value_times: List[int] = []
        failures: List[Tuple[int, str]] = []
        for row, (record, micros, partition) in enumerate(zip(rows, times, partitions)):
            key = self._function.key_of(record)
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(None, partition)
            self._use(key, entry, micros)
            try:
                entry.kept, actions, reason = self._function.on_record(entry.kept, record, micros)
            except RecordFailure as failure:
                raise RecordFailure(row, failure.value) from failure.__cause__
            if reason is not None:
                failures.append((row, reason))
            emitted = self._apply(key, entry, actions, micros, values, value_times)
            value_rows.extend([row] * emitted)
        return values, value_rows, value_times, failures

    def fire(self, watermark: int) -> Tuple[List[Any], List[int], bool]:
        """Fires timers up to the watermark. Returns emitted values, their times, and true if further
        timers are due."""
        self._watermark = max(self._watermark, watermark)
        values: List[Any] = []
        times: List[int] = []
        events = self._events
        while events and events[0][0] <= watermark:
            if len(values) >= _RESULTS_PER_CALL:
                return values, times, True
            time, kind, _, key = heapq.heappop(events)
            entry = self._entries.get(key)
            if entry is None:
                continue
            if kind == _EXPIRY:
                if watermark != _END and time == entry.expiry_at:
                    self._expire(key, entry, time)
            elif time in entry.timers:
                entry.timers.discard(time)
                self._call_timer(key, entry, time, values, times)
        return values, times, False

    def saved(self) -> Iterator[Tuple[int, bytes, bytes]]:
        """Returns the state: the partition of each key, the key and the value."""
        for key, entry in self._entries.items():
            value = pickle.dumps((entry.kept, sorted(entry.timers), entry.used), 4)
            yield entry.partition, pickle.dumps(key, 4), value

    def restore(self, partition: int, key: bytes, value: bytes) -> None:
        """Adds a key of a checkpoint."""
        restored = pickle.loads(key)
        kept, timers, used = pickle.loads(value)
        entry = self._entries[restored] = _Entry(kept, partition)
        entry.timers = set(timers)
        entry.used = used
        for time in timers:
            self._add_event(time, _TIMER, restored)
        if self._ttl is not None:
            # The time-to-live of a key that was saved without one begins now.
            self._set_expiry(restored, entry, used + self._ttl if used is not None else 0)

    def _use(self, key: Any, entry: _Entry, micros: int) -> None:
        """Extends the time-to-live of a key."""
        if self._ttl is None:
            return
        used = max(micros, self._watermark)
        if entry.used is None:
            self._set_expiry(key, entry, used + self._ttl)
        entry.used = used if entry.used is None else max(entry.used, used)

    def _expire(self, key: Any, entry: _Entry, deadline: int) -> None:
        """Removes a key without a use since its time-to-live."""
        if self._ttl is None:
            return
        if entry.used is None:
            self._use(key, entry, self._watermark)
        elif entry.used + self._ttl <= deadline:
            del self._entries[key]
        else:
            self._set_expiry(key, entry, entry.used + self._ttl)

    def _set_expiry(self, key: Any, entry: _Entry, time: int) -> None:
        entry.expiry_at = time
        self._add_event(time, _EXPIRY, key)

    def _call_timer(
        self, key: Any, entry: _Entry, time: int, values: List[Any], times: List[int]
    ) -> None:
        self._use(key, entry, time)
        kept = entry.kept if entry.kept is not None else [key, None]
        try:
            entry.kept, actions, reason = self._function.on_timer(kept, time, False)
        except RecordFailure as failure:
            # The batch has no record of it.
            raise (failure.__cause__ or failure) from None
        if reason is not None:
            raise invalid(f"a timer failed: {reason}")
        self._apply(key, entry, actions, time, values, times)

    def _apply(
        self,
        key: Any,
        entry: _Entry,
        actions: List[Action],
        micros: int,
        values: List[Any],
        times: List[int],
    ) -> int:
        """Carries out actions. Returns the number of emitted records."""
        emitted = 0
        is_cleared = False
        for kind, value, time in actions:
            if kind == EMIT:
                values.append(value)
                times.append(micros if time is None else time)
                emitted += 1
            elif kind == SET and time is not None:
                if time not in entry.timers:
                    entry.timers.add(time)
                    self._add_event(time, _TIMER, key)
            elif kind == CLEAR and time is not None:
                entry.timers.discard(time)
            elif kind == SET_PROCESSING:
                raise invalid(
                    "a function in a process of its own has no timers in processing time",
                    "run the step in the process of the job: process=False",
                )
            elif kind == CLEAR_STATE:
                is_cleared = True
        if is_cleared:
            del self._entries[key]
        return emitted

    def _add_event(self, time: int, kind: int, key: Any) -> None:
        heapq.heappush(self._events, (time, kind, next(self._numbers), key))
