"""Lines of TCP connections."""

from __future__ import annotations

from typing import Optional

from .durations import Duration, microseconds
from .messages import ColumnLike, SystemSink, SystemSource, message_plan, outgoing_plan
from .schemas import SchemaLike


def connect(
    address: str,
    *,
    schema: Optional[SchemaLike] = None,
    format: str = "json",
    reconnect: bool = False,
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the lines of a server at ``host:port``.

    A line is a JSON object with the fields of ``schema``, or with ``format="text"`` the text of the
    column ``value``. The source ends or fails with the connection, unless ``reconnect`` is set. Jobs
    with a guarantee refuse it.
    """
    plan = {
        "address": address,
        "listens": False,
        "messages": message_plan(schema, format, (), on_error),
        "reconnect": reconnect,
        "expose": False,
        "max_clients": None,
        "idle_timeout": None,
    }
    return SystemSource("tcp", plan, f"tcp.connect({address!r})")


def listen(
    address: str,
    *,
    schema: Optional[SchemaLike] = None,
    format: str = "json",
    expose: bool = False,
    max_clients: Optional[int] = None,
    idle_timeout: Optional[Duration] = None,
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the lines of clients that connect to ``port`` or ``host:port``.

    The server is on loopback unless ``expose`` is set. See ``connect`` for the lines.
    """
    plan = {
        "address": address,
        "listens": True,
        "messages": message_plan(schema, format, (), on_error),
        "reconnect": False,
        "expose": expose,
        "max_clients": max_clients,
        "idle_timeout": None if idle_timeout is None else microseconds(idle_timeout),
    }
    return SystemSource("tcp", plan, f"tcp.listen({address!r})")


def send(
    address: str,
    *,
    value: Optional[ColumnLike] = None,
    reconnect: bool = False,
    on_error: str = "dead_letter",
) -> SystemSink:
    """Returns a sink that writes each record as a line to a server: a JSON object of all columns,
    or the text of ``value``."""
    outgoing = outgoing_plan(value, on_error)
    plan = {"address": address, "outgoing": outgoing, "reconnect": reconnect}
    return SystemSink("tcp", plan, f"tcp.send({address!r})")
