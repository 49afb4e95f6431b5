"""Streams grouped by a key, and their windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .aggregates import Aggregate
from .durations import Duration, microseconds
from .errors import invalid
from .keyed import KeyedFunction
from .messages import policy
from .schemas import SchemaLike, fields_of
from .selections import TopRecords
from .sources import OBJECT_FIELDS
from .streams import Stream
from .windows import Window

if TYPE_CHECKING:
    from .keyed import ProcessFunction


class KeyedStream:
    """A stream whose records are grouped by a key."""

    def __init__(self, stream: Stream, keys: List[str]) -> None:
        self._stream = stream
        self._keys = keys

    def window(self, window: Window) -> WindowedStream:
        """Assigns the records of each key to windows of event time."""
        return WindowedStream(self._stream, self._keys, window)

    def aggregate(self, name: Optional[str] = None, /, **aggregates: Aggregate) -> Stream:
        """Aggregates all records of each key at the end of a bounded stream.

        The results have the columns of the key, and a column for each aggregate. ``name`` is that
        of the step; its state is found by this name after an upgrade.
        """
        return self._stream._step(
            "aggregate",
            has_objects=False,
            name=self._stream._pipeline._step_name(name, "aggregate"),
            keys=self._keys,
            aggregates=_trees(aggregates),
        )

    def rolling(self, name: Optional[str] = None, /, **aggregates: Aggregate) -> Stream:
        """Emits each record with its columns, and the aggregates of the records of its key so far."""
        return self._keyed_step(
            "rolling", name, aggregates=_trees(aggregates), ttl_micros=None
        )

    def rolling_with_ttl(
        self, ttl: Duration, name: Optional[str] = None, /, **aggregates: Aggregate
    ) -> Stream:
        """Works like ``rolling``, and resets a key without a record for longer than ``ttl`` of event
        time."""
        micros = microseconds(ttl)
        return self._keyed_step("rolling", name, aggregates=_trees(aggregates), ttl_micros=micros)

    def distinct(self, name: Optional[str] = None) -> Stream:
        """Emits the first record of each key. All keys are retained."""
        return self._keyed_step("distinct", name, within_micros=None)

    def distinct_within(self, span: Duration, name: Optional[str] = None) -> Stream:
        """Emits the records of a key that are at least ``span`` of event time after the last emitted
        one."""
        return self._keyed_step("distinct", name, within_micros=microseconds(span))

    def top(self, top: TopRecords, *, name: Optional[str] = None) -> Stream:
        """Emits the selected records of each key at the end of a bounded stream: ``a.top_n(10,
        "price")`` or ``a.all_with_max("price")``."""
        return self._keyed_step("top", name, window=None, top=_selection(top))

    def interval_join(
        self,
        other: KeyedStream,
        *,
        before: Duration = "0s",
        after: Duration = "0s",
        outer: bool = False,
        name: Optional[str] = None,
    ) -> Stream:
        """Joins two streams where keys are equal and the record of ``other`` is at most ``before``
        earlier and at most ``after`` later in event time.

        A pair is emitted when its second record arrives. With ``outer``, a record without a match is
        emitted with null when no match can arrive any more.
        """
        bounds = {"lower_micros": -microseconds(before), "upper_micros": microseconds(after)}
        return self._joined(other, {"interval": bounds}, outer, name, "interval-join")

    def _joined(
        self, other: KeyedStream, by: Any, outer: bool, name: Optional[str], kind: str
    ) -> Stream:
        if not isinstance(other, KeyedStream):
            raise invalid("the second stream of a join has no key", "give it one: key_by(..)")
        keys = (self._keys, other._keys)
        return self._stream._join(other._stream, keys, by, outer, name, kind)

    def _keyed_step(self, kind: str, name: Optional[str], **options: Any) -> Stream:
        self._stream._require_columns(kind)
        name = self._stream._pipeline._step_name(name, kind)
        return self._stream._step(kind, has_objects=False, name=name, keys=self._keys, **options)

    def process(
        self,
        function: ProcessFunction,
        *,
        name: Optional[str] = None,
        schema: Optional[SchemaLike] = None,
        ttl: Optional[Duration] = None,
        on_error: Optional[str] = None,
        process: Optional[bool] = None,
    ) -> Stream:
        """Calls a function with each record and the state of its key.

        ``function`` is a function of a ``Context`` and a record, or an object with the methods
        ``on_record(ctx, record)`` and ``on_timer(ctx)``. It changes ``ctx.state``, emits records
        and sets timers. With a ``schema`` the emitted records are rows of columns, otherwise
        objects. A key that no record and no timer has used for ``ttl`` of event time is removed.
        ``name`` is that of the step; its state is found by this name after an upgrade. ``process`` is
        explained in ``Pipeline.functions``.
        """
        stream = self._stream
        on_failure = policy(on_error or stream._pipeline.on_error)
        keyed = KeyedFunction(
            function,
            reads_objects=stream._has_objects(),
            writes_objects=schema is None,
            stops=on_failure == "fail",
            keys=self._keys,
        )
        return stream._step(
            "process",
            has_objects=schema is None,
            name=stream._pipeline._step_name(name, "process"),
            keys=self._keys,
            function=stream._pipeline._plan.keep(keyed),
            fields=OBJECT_FIELDS if schema is None else fields_of(schema),
            ttl_micros=None if ttl is None else microseconds(ttl),
            on_error=on_failure,
            process=stream._pipeline._process(process),
        )


class WindowedStream:
    """A keyed stream whose records are assigned to windows."""

    def __init__(self, stream: Stream, keys: List[str], window: Window) -> None:
        self._stream = stream
        self._keys = keys
        self._window = window

    def aggregate(self, name: Optional[str] = None, /, **aggregates: Aggregate) -> Stream:
        """Emits a record for each key and window when the watermark reaches the window's end.

        The results have the columns ``window_start``, ``window_end``, those of the key, and one for
        each aggregate. Late records are counted.
        """
        return self.aggregate_and_late(name, **aggregates)[0]

    def aggregate_and_late(
        self, name: Optional[str] = None, /, **aggregates: Aggregate
    ) -> Tuple[Stream, Stream]:
        """Works like ``aggregate``, and returns the late records as a second stream."""
        results = self._stream._step(
            "window",
            has_objects=False,
            name=self._stream._pipeline._step_name(name, "window"),
            keys=self._keys,
            window=self._window.tree(),
            aggregates=_trees(aggregates),
        )
        step, _ = results._base
        late = Stream(self._stream._pipeline, (step, 1), self._stream._has_objects())
        return results, late

    def top(self, top: TopRecords, *, name: Optional[str] = None) -> Stream:
        """Emits the selected records of each key and window: its bounds, and the columns of the
        record. Session windows have no selection."""
        stream = self._stream
        stream._require_columns("top")
        return stream._step(
            "top",
            has_objects=False,
            name=stream._pipeline._step_name(name, "top"),
            keys=self._keys,
            window=self._window.tree(),
            top=_selection(top),
        )

    def join(self, other: KeyedStream, *, name: Optional[str] = None) -> Stream:
        """Joins two streams: emits a record for each pair of records with equal keys in the same
        window."""
        keyed = KeyedStream(self._stream, self._keys)
        return keyed._joined(other, {"window": self._window.tree()}, False, name, "join")


def _selection(top: TopRecords) -> Dict[str, Any]:
    if not isinstance(top, TopRecords):
        raise invalid(f"{top!r} selects no records", 'write for example ardea.top_n(10, "price")')
    return top.tree()


def _trees(aggregates: Dict[str, Aggregate]) -> List[Dict[str, Any]]:
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise invalid(
                f"the aggregate {name!r} is {aggregate!r}", "write for example bids=ardea.count()"
            )
    return [aggregate.tree(name) for name, aggregate in aggregates.items()]
