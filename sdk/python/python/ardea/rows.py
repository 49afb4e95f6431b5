"""Functions on single records, run a batch at a time."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from .errors import RecordFailure

#: The outcome of a batch: the row of each value, the values, and the failed rows with the reasons.
#: Without rows there is one value for each record; without values the records are unchanged.
Outcome = Tuple[
    Optional[List[int]], Optional[List[Any]], Optional[List[Tuple[int, str]]]
]

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class RowOperation(NamedTuple):
    """An operation of a chain: its kind, and the user's function.

    The kinds are ``filter``, ``map``, ``flat_map``, ``each`` (called for its effect, without
    results) and ``append`` (the values of further columns).
    """

    kind: str
    function: Callable[[Any], Any]


def dump(value: Any) -> bytes:
    """Returns an object as bytes."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


class RowFunction:
    """A chain of operations on single records, called with the records of a batch.

    ``reads_objects`` and ``writes_objects`` are true if the records are objects and not rows of
    columns. With ``stops`` an exception ends the batch as ``RecordFailure``; otherwise it is
    reported with its row, and the next record follows.
    """

    def __init__(
        self,
        operations: Sequence[RowOperation],
        *,
        reads_objects: bool,
        writes_objects: bool,
        stops: bool,
    ) -> None:
        self._operations = tuple(operations)
        self._reads_objects = reads_objects
        self._writes_objects = writes_objects
        self._stops = stops

    def __call__(self, rows: List[Any]) -> Outcome:
        if self._reads_objects:
            rows = [pickle.loads(row) for row in rows]
        only = self._operations[0] if len(self._operations) == 1 else None
        if self._stops and only is not None and only.kind in ("map", "append"):
            return None, self._written(_map(only.function, rows)), None
        if self._stops and only is not None and only.kind == "filter":
            return _filter(only.function, rows), None, None
        return self._run(rows)

    def _run(self, rows: List[Any]) -> Outcome:
        """Applies all operations to each record."""
        kept: List[int] = []
        values: List[Any] = []
        failures: List[Tuple[int, str]] = []
        operations = self._operations
        for row, record in enumerate(rows):
            results: List[Any] = []
            try:
                _apply(operations, 0, record, results)
            except Exception as error:
                if self._stops:
                    raise RecordFailure(row, record) from error
                failures.append((row, reason_of(error)))
                continue
            values.extend(results)
            kept.extend([row] * len(results))
        has_values = any(operation.kind != "filter" for operation in operations)
        written = self._written(values) if has_values else None
        return kept, written, failures or None

    def _written(self, values: List[Any]) -> List[Any]:
        return [dump(value) for value in values] if self._writes_objects else values


def _apply(
    operations: Sequence[RowOperation], first: int, record: Any, results: List[Any]
) -> None:
    """Applies the operations from ``first`` on to a record, and appends the results."""
    for index in range(first, len(operations)):
        kind, function = operations[index]
        if kind == "filter":
            if not function(record):
                return
        elif kind == "flat_map":
            for each in function(record):
                _apply(operations, index + 1, each, results)
            return
        elif kind == "each":
            function(record)
            return
        else:
            record = function(record)
    results.append(record)


def _map(function: Callable[[Any], Any], rows: List[Any]) -> List[Any]:
    values: List[Any] = []
    append = values.append
    try:
        for row in rows:
            append(function(row))
    except Exception as error:
        raise RecordFailure(len(values), rows[len(values)]) from error
    return values


def _filter(condition: Callable[[Any], Any], rows: List[Any]) -> List[int]:
    kept: List[int] = []
    row = 0
    try:
        for row, record in enumerate(rows):
            if condition(record):
                kept.append(row)
    except Exception as error:
        raise RecordFailure(row, rows[row]) from error
    return kept


def reason_of(error: BaseException) -> str:
    """Returns an exception in a line, with the place in the user's code."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    if not own:
        return text
    last = own[-1]
    return f"{text} (in {last.name}, {os.path.basename(last.filename)}:{last.lineno})"


def describe_failure(error: BaseException) -> Tuple[str, int, str]:
    """Returns what Rust reports of an exception: its text with the place, the row of the record
    (-1 if unknown) and the record."""
    if not isinstance(error, RecordFailure):
        return reason_of(error), -1, ""
    return reason_of(error.__cause__ or error), error.row, _shortened(repr(error.value))


def _shortened(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
