"""Standard input and output as source and sink."""

from __future__ import annotations

from typing import Optional

from .messages import ColumnLike, SystemSink, SystemSource, message_plan, outgoing_plan
from .schemas import SchemaLike


def stdin(
    *,
    schema: Optional[SchemaLike] = None,
    format: str = "json",
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the lines of standard input: JSON objects with the fields of ``schema``,
    or with ``format="text"`` texts in the column ``value``."""
    return SystemSource("stdin", message_plan(schema, format, (), on_error), "stdin()")


def stdout(*, value: Optional[ColumnLike] = None, on_error: str = "dead_letter") -> SystemSink:
    """Returns a sink that writes each record as a line to standard output: a JSON object of all
    columns, or the text of ``value``."""
    return SystemSink("stdout", outgoing_plan(value, on_error), "stdout()")
