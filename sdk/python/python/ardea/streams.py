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
    Sequence,
    Tuple,
    Union,
    get_type_hints,
)

from .asynchronous import AsyncFunction
from .batches import BatchCallable, BatchFunction
from .collected import Collected
from .durations import Duration, microseconds
from .errors import invalid
from .expressions import Expr, col
from .notebook import LiveTable
from .messages import names, policy
from .plans import Output
from .rows import Outcome, RowFunction, RowOperation
from .schemas import ColumnType, Field, SchemaLike, data_type, fields_of, is_record_class
from .sources import OBJECT_FIELDS
from .times import timestamp_of

if TYPE_CHECKING:
    from .grouped import KeyedStream
    from .pipelines import Pipeline, SinkLike

#: A function on a record: a dictionary for rows of columns, otherwise the object itself.
RowCallable = Callable[[Any], Any]

_TIME_COLUMN = "__time__"
_LINE_COLUMN = "__line__"
_LINE_FIELDS: List[Field] = [(_LINE_COLUMN, "Utf8", False)]
_KEY_COLUMN = "key"


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
        self._process: Optional[Dict[str, Any]] = None
        self._fields: Optional[List[Field]] = None
        self._name = ""
        self._output: Optional[Output] = None

    # Functions and expressions

    def filter(
        self,
        condition: Union[Expr, RowCallable],
        *,
        on_error: Optional[str] = None,
        process: Optional[bool] = None,
    ) -> Stream:
        """Keeps the records for which a condition is true: an expression, or a function.

        ``on_error`` is the treatment of a record for which the condition fails: ``"fail"``,
        ``"dead_letter"`` or ``"drop"``. By default a function fails the job, and for an expression
        the record becomes a dead letter. ``process`` is explained in ``Pipeline.functions``.
        """
        if isinstance(condition, Expr):
            tree, on_failure = condition.tree(), policy(on_error or "dead_letter")
            return self._column_step("filter", "filter", condition=tree, on_error=on_failure)
        return self._then("filter", condition, on_error, self._fields, process)

    def map(
        self,
        function: Union[RowCallable, BatchFunction],
        *,
        schema: Optional[SchemaLike] = None,
        on_error: Optional[str] = None,
        process: Optional[bool] = None,
    ) -> Stream:
        """Applies a function to each record.

        With a ``schema`` the results are rows of columns. So are those of a function whose return
        annotation is a ``TypedDict``, a ``NamedTuple`` or a data class. Other results are objects.
        ``process`` is explained in ``Pipeline.functions``.
        """
        if isinstance(function, BatchFunction):
            return self.map_batches(function, process=process)
        return self._then("map", function, on_error, _result_fields(function, schema), process)

    def flat_map(
        self,
        function: Callable[[Any], Iterable[Any]],
        *,
        schema: Optional[SchemaLike] = None,
        on_error: Optional[str] = None,
        process: Optional[bool] = None,
    ) -> Stream:
        """Applies a function to each record, and emits all items of the result. See ``map``."""
        fields = None if schema is None else fields_of(schema)
        return self._then("flat_map", function, on_error, fields, process)

    def map_batches(
        self,
        function: Union[BatchCallable, BatchFunction],
        *,
        schema: Optional[SchemaLike] = None,
        adds: Optional[Dict[str, ColumnType]] = None,
        process: Optional[bool] = None,
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
            process=self._pipeline._process(process),
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
        on_failure = policy(on_error or self._pipeline.on_error)
        fields = _result_fields(function, schema)
        calls = AsyncFunction(
            function,
            limit=limit,
            timeout_micros=None if timeout is None else microseconds(timeout),
            retries=retries,
            reads_objects=base._base_objects,
            writes_objects=fields is None,
            stops=on_failure == "fail",
        )
        name = getattr(function, "__name__", "map-async")
        output = {"columns": OBJECT_FIELDS if fields is None else fields}
        made = base._add_function(calls, name, output, on_failure, True, None)
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
        return self._then("map", _identity, None, fields_of(schema), None)

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

    def with_source_time(self) -> Stream:
        """Uses the event times and the watermarks of the source, such as Kafka's."""
        return self._step("source_time", has_objects=self._has_objects())

    # Several streams

    def merge(self, other: Stream) -> Stream:
        """Emits the records of both streams. Their columns have the same names and types, in the
        same order."""
        self._require_same(other, "merge")
        if self._has_objects() != other._has_objects():
            raise invalid(
                "one of two merged streams has columns, and the other one objects",
                "convert one of them: map(f, schema={...}), columns({...}) or map(dict)",
            )
        inputs = [self._read(), other._read()]
        step = self._pipeline._plan.add("merge", inputs)
        return Stream(self._pipeline, (step, 0), self._has_objects())

    def hash_join(
        self,
        table: Stream,
        key: Union[str, Sequence[str]],
        table_key: Optional[Union[str, Sequence[str]]] = None,
        *,
        outer: bool = False,
        name: Optional[str] = None,
    ) -> Stream:
        """Joins with a table: emits a record for each record and each row of the table with an equal
        key, with the columns of both but the key columns of the table.

        The table is a bounded stream, which is read to its end first and is held by every instance.
        With ``outer``, a record without a match is emitted with null in the columns of the table.
        ``table_key`` are the key columns of the table, by default those of ``key``. A stream and its
        own copy wait for each other: read the source twice instead.
        """
        table_key = names(key if table_key is None else table_key)
        return self._join(table, (names(key), table_key), "table", outer, name, "hash-join")

    def _join(
        self,
        other: Stream,
        keys: Tuple[List[str], List[str]],
        by: Any,
        outer: bool,
        name: Optional[str],
        kind: str,
    ) -> Stream:
        self._require_same(other, "a join")
        for stream in (self, other):
            stream._require_columns("a join")
        step = self._pipeline._plan.add(
            "join",
            [self._read(), other._read()],
            name=self._pipeline._step_name(name, kind),
            keys=keys[0],
            other_keys=keys[1],
            by=by,
            is_outer=outer,
        )
        return Stream(self._pipeline, (step, 0), False)

    def _require_same(self, other: Stream, step: str) -> None:
        if not isinstance(other, Stream):
            raise invalid(f"{step} needs a second stream, and not {other!r}")
        if other._pipeline is not self._pipeline:
            raise invalid("two streams belong to different pipelines", "read both with one of them")

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
        from .grouped import KeyedStream

        stream: Stream = self
        columns: List[str] = []
        for key in keys:
            if isinstance(key, str) and not stream._has_objects():
                columns.append(key)
                continue
            name = key if isinstance(key, str) else _KEY_COLUMN
            function = _item_of(key) if isinstance(key, str) else key
            stream = stream._append(name, function, _result_type(function, type), None)
            columns.append(name)
        for name, value in named.items():
            stream = stream.with_column(name, value, type=None if isinstance(value, Expr) else type)
            columns.append(name)
        return KeyedStream(stream, columns)

    # Distribution

    def rebalance(self) -> Stream:
        """Distributes the records evenly over all cores, for expensive steps after a source with
        one instance."""
        return self._step("rebalance", has_objects=self._has_objects())

    # Ends

    def write(self, sink: SinkLike) -> None:
        """Writes the records to a sink, such as ``ardea.files.json("out.jsonl")``."""
        has_lines = self._has_objects()
        stream = self._then("map", _json_line, None, _LINE_FIELDS, None) if has_lines else self
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
        stream = self._then("each", function, on_error, None, False)
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
        process: Optional[bool],
    ) -> Stream:
        """Appends an operation to the chain of functions."""
        if not callable(function):
            raise invalid(f"{kind} takes an expression or a function, and not {function!r}")
        on_failure = policy(on_error or self._pipeline.on_error)
        wanted = self._pipeline._process(process)
        if process is None and self._operations and function in (_identity, _json_line):
            # Conversions follow their function.
            wanted = self._process
        base, before = self, self._operations
        if before and (self._on_error, self._process) != (on_failure, wanted):
            base, before = Stream(self._pipeline, self._read(), self._has_objects()), ()
        stream = Stream(self._pipeline, base._base, base._base_objects)
        stream._operations = (*before, RowOperation(kind, function))
        stream._on_error = on_failure
        stream._process = wanted
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
        stream = stream._then("append", function, on_error, None, False)
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
        return self._add_function(
            function, self._name, output, self._on_error, blocks, self._process
        )

    def _add_function(
        self,
        function: Callable[[List[Any]], Outcome],
        name: str,
        output: Dict[str, Any],
        on_error: str,
        blocks: bool,
        process: Optional[Dict[str, Any]],
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
            process=process,
        )
        return (step, 0)

    def _column_step(self, kind: str, step: str, **options: Any) -> Stream:
        """Adds a step on columns."""
        self._require_columns(step)
        return self._step(kind, has_objects=False, **options)

    def _step(self, kind: str, *, has_objects: bool, **options: Any) -> Stream:
        step = self._pipeline._plan.add(kind, [self._read()], **options)
        return Stream(self._pipeline, (step, 0), has_objects)


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
