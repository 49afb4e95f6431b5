"""Streams, and their steps."""

from __future__ import annotations

import json
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Dict,
    Iterable,
    List,
    Optional,
    Tuple,
    Union,
    get_type_hints,
)

from .aggregates import Aggregate
from .asynchronous import AsyncFunction
from .batches import BatchCallable, BatchFunction
from .collected import Collected
from .durations import Duration, microseconds
from .errors import invalid
from .expressions import Expr, col
from .notebook import LiveTable
from .plans import Output
from .rows import Outcome, RowFunction, RowOperation
from .schemas import ColumnType, Field, SchemaLike, data_type, fields_of, is_record_class
from .sources import OBJECT_FIELDS
from .times import timestamp_of
from .windows import Window

if TYPE_CHECKING:
    from .keyed import ProcessFunction
    from .pipelines import Pipeline, SinkLike

#: A function on a record: a dictionary for rows of columns, otherwise the object itself.
RowCallable = Callable[[Any], Any]

_TIME_COLUMN = "__time__"
_LINE_COLUMN = "__line__"
_LINE_FIELDS: List[Field] = [(_LINE_COLUMN, "Utf8", False)]
_KEY_COLUMN = "key"
_POLICIES = ("fail", "dead_letter", "drop")


class Stream:
    """A stream of records.

    The records are rows of columns, or the Python objects that a function has returned. Expressions
    and aggregates work on columns; functions on both. A stream may be read by several steps: each
    gets all records.
    """

    def __init__(self, pipeline: Pipeline, base: Output, has_objects: bool) -> None:
        self._pipeline = pipeline
        self._base = base
        self._base_objects = has_objects
        self._operations: Tuple[RowOperation, ...] = ()
        self._on_error = "fail"
        self._fields: Optional[List[Field]] = None
        self._name = ""
        self._output: Optional[Output] = None

    # Functions and expressions

    def filter(
        self, condition: Union[Expr, RowCallable], *, on_error: Optional[str] = None
    ) -> Stream:
        """Keeps the records for which a condition is true: an expression, or a function.

        ``on_error`` is the treatment of a record for which the condition fails: ``"fail"``,
        ``"dead_letter"`` or ``"drop"``. By default a function fails the job, and for an expression
        the record becomes a dead letter.
        """
        if isinstance(condition, Expr):
            tree, policy = condition.tree(), _policy(on_error or "dead_letter")
            return self._column_step("filter", "filter", condition=tree, on_error=policy)
        return self._then("filter", condition, on_error, self._fields)

    def map(
        self,
        function: Union[RowCallable, BatchFunction],
        *,
        schema: Optional[SchemaLike] = None,
        on_error: Optional[str] = None,
    ) -> Stream:
        """Applies a function to each record.

        With a ``schema`` the results are rows of columns. So are those of a function whose return
        annotation is a ``TypedDict``, a ``NamedTuple`` or a data class. Other results are objects.
        """
        if isinstance(function, BatchFunction):
            return self.map_batches(function)
        return self._then("map", function, on_error, _result_fields(function, schema))

    def flat_map(
        self,
        function: Callable[[Any], Iterable[Any]],
        *,
        schema: Optional[SchemaLike] = None,
        on_error: Optional[str] = None,
    ) -> Stream:
        """Applies a function to each record, and emits all items of the result. See ``map``."""
        fields = None if schema is None else fields_of(schema)
        return self._then("flat_map", function, on_error, fields)

    def map_batches(
        self,
        function: Union[BatchCallable, BatchFunction],
        *,
        schema: Optional[SchemaLike] = None,
        adds: Optional[Dict[str, ColumnType]] = None,
    ) -> Stream:
        """Applies a function to whole batches of records. See ``ardea.batch``."""
        self._require_columns("map_batches")
        if not isinstance(function, BatchFunction) or schema is not None or adds is not None:
            function = BatchFunction(function, schema, adds)
        output: Dict[str, Any] = {"same": None}
        fields, added = function.fields(), function.added_fields()
        if fields is not None:
            output = {"columns": fields}
        elif added is not None:
            output = {"append": added}
        return self._step(
            "function",
            has_objects=False,
            name=function.__name__,
            function=self._pipeline._plan.keep(function.function()),
            form="batch",
            output=output,
            on_error="fail",
            blocks=False,
        )

    def map_async(
        self,
        function: Callable[[Any], Awaitable[Any]],
        *,
        limit: int = 100,
        timeout: Optional[Duration] = None,
        retries: int = 0,
        schema: Optional[SchemaLike] = None,
        on_error: Optional[str] = None,
    ) -> Stream:
        """Applies an ``async`` function to each record, for requests to other systems.

        Up to ``limit`` calls of an instance run at the same time, on a loop in a thread. Results
        keep the order of the records. A call that takes longer than ``timeout`` or raises is
        repeated up to ``retries`` times; then it counts as failed. See ``map`` for the results.
        """
        base = Stream(self._pipeline, self._read(), self._has_objects())
        policy = _policy(on_error or self._pipeline.on_error)
        fields = _result_fields(function, schema)
        calls = AsyncFunction(
            function,
            limit=limit,
            timeout_micros=None if timeout is None else microseconds(timeout),
            retries=retries,
            reads_objects=base._base_objects,
            writes_objects=fields is None,
            stops=policy == "fail",
        )
        name = getattr(function, "__name__", "map-async")
        output = {"columns": OBJECT_FIELDS if fields is None else fields}
        made = base._add_function(calls, name, output, policy, True)
        return Stream(self._pipeline, made, fields is None)

    def select(self, *columns: Union[str, Expr], **named: Expr) -> Stream:
        """Replaces the columns by these: names, or expressions with names."""
        exprs = [col(column) if isinstance(column, str) else column for column in columns]
        exprs += [expr.alias(name) for name, expr in named.items()]
        trees = [expr.tree() for expr in exprs]
        return self._column_step("select", "select", columns=trees)

    def with_column(
        self,
        name: str,
        value: Union[Expr, RowCallable],
        *,
        type: Optional[ColumnType] = None,  # noqa: A002
        on_error: Optional[str] = None,
    ) -> Stream:
        """Adds a column: the value of an expression, or the result of a function.

        The column of a function has the given ``type``, or that of its return annotation.
        """
        if isinstance(value, Expr):
            return self._column_step("with_column", "select", column=value.alias(name).tree())
        return self._append(name, value, _result_type(value, type), on_error)

    def columns(self, schema: SchemaLike) -> Stream:
        """Converts objects to rows of columns: dictionaries, or objects with these attributes."""
        return self._then("map", _identity, None, fields_of(schema))

    def drop(self, *columns: str) -> Stream:
        """Removes columns."""
        return self._column_step("drop", "select", names=list(columns))

    # Time

    def with_timestamps(
        self,
        time: Union[str, Expr, RowCallable],
        *,
        lag: Duration = "0s",
        idle: Optional[Duration] = "10s",
        max_ahead: Optional[Duration] = "1d",
    ) -> Stream:
        """Assigns each record its event time: a column, an expression or a function.

        Records arrive at most ``lag`` out of order; older ones are late. A source that is silent
        for ``idle`` no longer holds back the others. A record becomes a dead letter if it has no
        time, or a time further than ``max_ahead`` ahead of the clock and of all other records. A
        function returns a ``datetime``, or a number of seconds since 1970.
        """
        options = {
            "lag_micros": microseconds(lag),
            "idle_micros": None if idle is None else microseconds(idle),
            "ahead_micros": None if max_ahead is None else microseconds(max_ahead),
        }
        if isinstance(time, (str, Expr)):
            tree = (col(time) if isinstance(time, str) else time).tree()
            return self._column_step("timestamps", "timestamps", time=tree, **options)
        function = time
        timed = self._append(
            _TIME_COLUMN, lambda record: timestamp_of(function(record)), data_type("timestamp"), None
        )
        has_objects = timed._base_objects
        timed = timed._step(
            "timestamps", has_objects=has_objects, time=col(_TIME_COLUMN).tree(), **options
        )
        return timed._step("drop", has_objects=has_objects, names=[_TIME_COLUMN])

    # Keys

    def key_by(
        self,
        *keys: Union[str, RowCallable],
        type: Optional[ColumnType] = None,  # noqa: A002
        **named: Union[Expr, RowCallable],
    ) -> KeyedStream:
        """Groups the records by columns, expressions or functions.

        ``key_by("auction")`` uses a column, ``key_by(bucket=a.col("id") % 10)`` adds one. The key
        of a function is of the given ``type``, or that of its return annotation, and stands in the
        column ``key`` or of the given name.
        """
        stream: Stream = self
        names: List[str] = []
        for key in keys:
            if isinstance(key, str) and not stream._has_objects():
                names.append(key)
                continue
            name = key if isinstance(key, str) else _KEY_COLUMN
            function = _item_of(key) if isinstance(key, str) else key
            stream = stream._append(name, function, _result_type(function, type), None)
            names.append(name)
        for name, value in named.items():
            stream = stream.with_column(name, value, type=None if isinstance(value, Expr) else type)
            names.append(name)
        return KeyedStream(stream, names)

    # Distribution

    def rebalance(self) -> Stream:
        """Distributes the records evenly over all cores, for expensive steps after a source with
        one instance."""
        return self._step("rebalance", has_objects=self._has_objects())

    # Ends

    def write(self, sink: SinkLike) -> None:
        """Writes the records to a sink, such as ``ardea.files.json("out.jsonl")``."""
        has_lines = self._has_objects()
        stream = self._then("map", _json_line, None, _LINE_FIELDS) if has_lines else self
        self._pipeline._plan.add(
            "write", [stream._read()], sink=sink.sink(), has_lines=has_lines
        )

    def collect(self) -> Collected:
        """Collects the records in the memory of this process; a cluster refuses the job."""
        collected = Collected(self._has_objects())
        self._pipeline._collect(collected, self._read())
        return collected

    def for_each(self, function: Callable[[Any], Any], *, on_error: Optional[str] = None) -> None:
        """Calls a function with each record, for its effect."""
        stream = self._then("each", function, on_error, None)
        self._pipeline._plan.add("discard", [stream._read()])

    def live_table(self, *key: str, every: Duration = "200ms", rows: int = 20) -> None:
        """Shows a table in a notebook: the latest record of each key, while the job runs."""
        self._require_columns("live_table")
        table = LiveTable(key, every, rows)
        self._pipeline._tables.append(table)
        self.for_each(table)

    def discard(self) -> None:
        """Drops the records: for measurements, and if only the effect of steps counts."""
        self._pipeline._plan.add("discard", [self._read()])

    def print(self) -> None:
        """Prints each record to standard output."""
        self.for_each(_print)

    # Construction

    def _has_objects(self) -> bool:
        """Returns true if the records are objects, and not rows of columns."""
        if all(operation.kind == "filter" for operation in self._operations):
            return self._base_objects
        return self._fields is None

    def _require_columns(self, step: str) -> None:
        if self._has_objects():
            raise invalid(
                f"{step} needs columns, and the records of this stream are objects",
                "give the types to the step that makes them: map(f, schema={...}) or columns({...})",
            )

    def _then(
        self,
        kind: str,
        function: RowCallable,
        on_error: Optional[str],
        fields: Optional[List[Field]],
    ) -> Stream:
        """Appends an operation to the chain of functions."""
        if not callable(function):
            raise invalid(f"{kind} takes an expression or a function, and not {function!r}")
        policy = _policy(on_error or self._pipeline.on_error)
        base, before = self, self._operations
        if before and self._on_error != policy:
            base, before = Stream(self._pipeline, self._read(), self._has_objects()), ()
        stream = Stream(self._pipeline, base._base, base._base_objects)
        stream._operations = (*before, RowOperation(kind, function))
        stream._on_error = policy
        stream._fields = fields
        name = getattr(function, "__name__", "<lambda>")
        is_named = name.isidentifier() and not name.startswith("_")
        stream._name = self._name or (name if is_named else kind.replace("_", "-"))
        return stream

    def _append(
        self, name: str, function: RowCallable, of: Any, on_error: Optional[str]
    ) -> Stream:
        """Adds a column with the results of a function."""
        stream: Stream = self
        if any(operation.kind != "filter" for operation in self._operations):
            stream = Stream(self._pipeline, self._read(), self._has_objects())
        stream = stream._then("append", function, on_error, None)
        has_objects = stream._base_objects
        output = stream._function_step({"append": [(name, of, True)]})
        return Stream(self._pipeline, output, has_objects)

    def _read(self) -> Output:
        """Returns the output of the step that makes the records, and adds it if necessary."""
        if not self._operations:
            return self._base
        if self._output is None:
            output: Dict[str, Any] = {"columns": self._fields}
            if all(operation.kind in ("filter", "each") for operation in self._operations):
                output = {"same": None}
            elif self._fields is None:
                output = {"columns": OBJECT_FIELDS}
            self._output = self._function_step(output)
        return self._output

    def _function_step(self, output: Dict[str, Any]) -> Output:
        function = RowFunction(
            self._operations,
            reads_objects=self._base_objects,
            writes_objects=output == {"columns": OBJECT_FIELDS},
            stops=self._on_error == "fail",
        )
        # The effect of a function may be output, which blocks.
        blocks = any(operation.kind == "each" for operation in self._operations)
        return self._add_function(function, self._name, output, self._on_error, blocks)

    def _add_function(
        self,
        function: Callable[[List[Any]], Outcome],
        name: str,
        output: Dict[str, Any],
        on_error: str,
        blocks: bool,
    ) -> Output:
        plan = self._pipeline._plan
        step = plan.add(
            "function",
            [self._base],
            name=name,
            function=plan.keep(function),
            form="rows",
            output=output,
            on_error=on_error,
            blocks=blocks,
        )
        return (step, 0)

    def _column_step(self, kind: str, step: str, **options: Any) -> Stream:
        """Adds a step on columns."""
        self._require_columns(step)
        return self._step(kind, has_objects=False, **options)

    def _step(self, kind: str, *, has_objects: bool, **options: Any) -> Stream:
        step = self._pipeline._plan.add(kind, [self._read()], **options)
        return Stream(self._pipeline, (step, 0), has_objects)


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

    def process(
        self,
        function: ProcessFunction,
        *,
        name: Optional[str] = None,
        schema: Optional[SchemaLike] = None,
        ttl: Optional[Duration] = None,
        on_error: Optional[str] = None,
    ) -> Stream:
        """Calls a function with each record and the state of its key.

        ``function`` is a function of a ``Context`` and a record, or an object with the methods
        ``on_record(ctx, record)`` and ``on_timer(ctx)``. It changes ``ctx.state``, emits records
        and sets timers. With a ``schema`` the emitted records are rows of columns, otherwise
        objects. A key that no record and no timer has used for ``ttl`` of event time is removed.
        ``name`` is that of the step; its state is found by this name after an upgrade.
        """
        from .keyed import KeyedFunction

        stream = self._stream
        policy = _policy(on_error or stream._pipeline.on_error)
        keyed = KeyedFunction(
            function,
            reads_objects=stream._has_objects(),
            writes_objects=schema is None,
            stops=policy == "fail",
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
            on_error=policy,
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


def _trees(aggregates: Dict[str, Aggregate]) -> List[Dict[str, Any]]:
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise invalid(
                f"the aggregate {name!r} is {aggregate!r}", "write for example bids=ardea.count()"
            )
    return [aggregate.tree(name) for name, aggregate in aggregates.items()]


def _policy(on_error: str) -> str:
    if on_error not in _POLICIES:
        raise invalid(f"on_error is {on_error!r}", f"the policies are {', '.join(_POLICIES)}")
    return on_error


def _result_fields(
    function: RowCallable, schema: Optional[SchemaLike]
) -> Optional[List[Field]]:
    """Returns the columns of a function's results; ``None`` for objects."""
    if schema is not None:
        return fields_of(schema)
    annotated = _return_annotation(function)
    return fields_of(annotated) if is_record_class(annotated) else None


def _result_type(function: RowCallable, given: Optional[ColumnType]) -> Any:
    """Returns the type of a column of a function's results."""
    if given is not None:
        return data_type(given)
    annotated = _return_annotation(function)
    if annotated is None:
        name = getattr(function, "__name__", "function")
        raise invalid(
            f"the type of the column that {name!r} makes is unknown",
            "give it with type=int, or annotate what the function returns",
        )
    return data_type(annotated)


def _return_annotation(function: RowCallable) -> Any:
    try:
        return get_type_hints(function).get("return")
    except Exception:
        # A name that exists for the type checker only.
        return None


def _item_of(name: str) -> RowCallable:
    return lambda record: record[name]


def _identity(record: Any) -> Any:
    return record


def _json_line(record: Any) -> Dict[str, str]:
    """Returns an object as a line of JSON."""
    text = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return {_LINE_COLUMN: text}


def _print(record: Any) -> None:
    print(record, flush=True)
