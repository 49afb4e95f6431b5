"""Functions with state and timers for each key."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any, Callable, List, Optional, Protocol, Sequence, Tuple, Type, Union

from .durations import Duration, microseconds
from .errors import RecordFailure, invalid
from .rows import dump, reason_of
from .sources import OBJECT_COLUMN
from .times import datetime_of, micros_of, timestamp_of

#: An action of a function, for Rust: its kind, a value, and a time in microseconds.
Action = Tuple[int, Any, Optional[int]]

EMIT, SET, CLEAR, SET_PROCESSING, CLEAR_PROCESSING, CLEAR_STATE = range(6)


class Context:
    """The key of a record or timer: its state, its timers, and the output.

    ``state`` is any value that can be pickled, and None for a new key. A change of it is saved.
    """

    __slots__ = ("_actions", "_kept", "_micros", "_writes_objects", "is_processing_timer")

    def __init__(self, writes_objects: bool) -> None:
        self._writes_objects = writes_objects
        self._kept: List[Any] = [None, None]
        self._micros = 0
        self._actions: List[Action] = []
        #: True in ``on_timer`` for a timer in processing time.
        self.is_processing_timer = False

    def begin(self, kept: List[Any], micros: int, is_processing: bool) -> None:
        """Sets the key, its state and the time. For the engine and tests."""
        self._kept = kept
        self._micros = micros
        self.is_processing_timer = is_processing

    def actions(self) -> List[Action]:
        """Returns the actions of the function. For the engine and tests."""
        return self._actions

    @property
    def key(self) -> Any:
        """The key; a tuple if it has several columns."""
        return self._kept[0]

    @property
    def state(self) -> Any:
        """The state of the key."""
        return self._kept[1]

    @state.setter
    def state(self, value: Any) -> None:
        self._kept[1] = value

    @property
    def time(self) -> datetime:
        """The event time of the record, or the time for which the timer was set, in UTC."""
        return datetime_of(self._micros)

    def emit(self, record: Any, *, time: Optional[datetime] = None) -> None:
        """Emits a record. Its event time is that of the context, or the given one."""
        value = dump(record) if self._writes_objects else record
        self._actions.append((EMIT, value, None if time is None else micros_of(time)))

    def set_timer(self, time: Union[datetime, float]) -> None:
        """Sets a timer in event time. It fires when no earlier record can arrive any more."""
        self._actions.append((SET, None, micros_of(timestamp_of(time))))

    def clear_timer(self, time: Union[datetime, float]) -> None:
        """Clears the timer for this event time."""
        self._actions.append((CLEAR, None, micros_of(timestamp_of(time))))

    def set_processing_timer(self, delay: Duration) -> None:
        """Sets a timer that fires after ``delay``, by the clock of the machine."""
        self._actions.append((SET_PROCESSING, None, microseconds(delay)))

    def clear_processing_timers(self) -> None:
        """Clears all timers in processing time of the key."""
        self._actions.append((CLEAR_PROCESSING, None, None))

    def clear_state(self) -> None:
        """Removes the key with its state and timers when the function returns."""
        self._actions.append((CLEAR_STATE, None, None))


class Process(Protocol):
    """An object that handles the records and timers of a key."""

    def on_record(self, ctx: Context, record: Any) -> None:
        """Handles a record."""


#: A function of a context and a record, or an object with ``on_record`` and ``on_timer``, or its
#: class.
ProcessFunction = Union[Callable[[Context, Any], Any], Process, Type[Process]]


class KeyedFunction:
    """A function with state, called by Rust with a record or a timer of a key."""

    def __init__(
        self,
        function: ProcessFunction,
        *,
        reads_objects: bool,
        writes_objects: bool,
        stops: bool,
        keys: Sequence[str],
    ) -> None:
        if isinstance(function, type):
            function = function()
        on_record = getattr(function, "on_record", function)
        if not callable(on_record):
            raise invalid(f"process takes a function or an object, and not {function!r}")
        self._on_record: Callable[[Context, Any], Any] = on_record
        self._on_timer: Optional[Callable[[Context], Any]] = getattr(function, "on_timer", None)
        self._reads_objects = reads_objects
        self._writes_objects = writes_objects
        self._stops = stops
        self._keys = list(keys)

    def key_of(self, row: Any) -> Any:
        """Returns the key of a record."""
        keys = [row[key] for key in self._keys]
        return keys[0] if len(keys) == 1 else tuple(keys)

    def on_record(
        self, kept: Optional[List[Any]], row: Any, micros: int
    ) -> Tuple[Optional[List[Any]], List[Action], Optional[str]]:
        """Handles a record. Returns what is kept of the key, the actions, and the reason of a
        failure."""
        if kept is None:
            kept = [self.key_of(row), None]
        record = pickle.loads(row[OBJECT_COLUMN]) if self._reads_objects else row
        return self._call(kept, micros, record, lambda ctx: self.call_record(ctx, record))

    def on_timer(
        self, kept: List[Any], micros: int, is_processing: bool
    ) -> Tuple[Optional[List[Any]], List[Action], Optional[str]]:
        """Handles a timer, like ``on_record``."""
        return self._call(kept, micros, kept[0], self.call_timer, is_processing)

    def call_record(self, context: Context, record: Any) -> None:
        """Calls the function with a record."""
        self._on_record(context, record)

    def call_timer(self, context: Context) -> None:
        """Calls the function for a timer."""
        if self._on_timer is None:
            raise TypeError("a timer was set, and the function has no on_timer(ctx)")
        self._on_timer(context)

    def _call(
        self,
        kept: List[Any],
        micros: int,
        record: Any,
        call: Callable[[Context], Any],
        is_processing: bool = False,
    ) -> Tuple[Optional[List[Any]], List[Action], Optional[str]]:
        # Instances on several threads share this object, and a function may be suspended.
        context = Context(self._writes_objects)
        context.begin(kept, micros, is_processing)
        try:
            call(context)
        except Exception as error:
            if self._stops:
                raise RecordFailure(0, record) from error
            return kept, [], reason_of(error)
        return kept, context.actions(), None
