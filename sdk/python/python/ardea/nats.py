"""NATS JetStream: streams as sources, subjects as sinks."""

from __future__ import annotations

from typing import Optional, Sequence, Union

from .durations import Duration, microseconds
from .expressions import Expr, lit
from .messages import (
    ColumnLike,
    SystemSink,
    SystemSource,
    column,
    lost_position,
    message_plan,
    outgoing_plan,
)
from .schemas import SchemaLike

#: The parts of a message beside its value, by the names of their columns.
METADATA = ("subject", "sequence", "timestamp")


def read(
    url: str,
    stream: str,
    *,
    schema: Optional[SchemaLike] = None,
    format: str = "json",
    metadata: Sequence[str] = (),
    subject: Optional[str] = None,
    consumer: Optional[str] = None,
    in_flight: Optional[int] = None,
    patience: Optional[Duration] = None,
    on_lost_position: str = "fail",
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the messages of a stream, which must exist.

    ``format``, ``schema`` and ``metadata`` are those of ``kafka.read``; the parts beside the value
    are ``subject``, ``sequence`` and ``timestamp``. ``with_source_time()`` uses the times at which
    the server received the messages. ``subject`` is a filter. ``in_flight`` must exceed the number
    of messages between two checkpoints.
    """
    plan = {
        "url": url,
        "stream": stream,
        "messages": message_plan(schema, format, metadata, on_error, METADATA),
        "subject": subject,
        "consumer": consumer,
        "in_flight": in_flight,
        "patience": None if patience is None else microseconds(patience),
        "on_lost_position": lost_position(on_lost_position),
    }
    return SystemSource("nats", plan, f"nats.read({stream!r})")


def write(
    url: str,
    subject: Union[str, Expr],
    *,
    value: Optional[ColumnLike] = None,
    id: Optional[ColumnLike] = None,
    idempotent: bool = False,
    parallelism: Optional[int] = None,
    on_error: str = "dead_letter",
) -> SystemSink:
    """Returns a sink that writes each record as a message.

    ``subject`` is a text, or an expression such as ``a.col("subject")``. The value is a JSON object
    of all columns, or the text or bytes of ``value``. With an ``id`` that depends on the record
    only, and ``idempotent``, a repeated message has no effect.
    """
    plan = {
        "url": url,
        "subject": (lit(subject) if isinstance(subject, str) else subject).tree(),
        "id": None if id is None else column(id).tree(),
        "outgoing": outgoing_plan(value, on_error),
        "parallelism": parallelism,
        "idempotent": idempotent,
    }
    return SystemSink("nats", plan, f"nats.write({subject!r})")
