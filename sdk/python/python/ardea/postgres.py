"""PostgreSQL: tables and queries as sources, tables as sinks."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Union

from .messages import SystemSink, SystemSource, lost_position, names, policy
from .schemas import SchemaLike, fields_of


def read(
    url: str,
    table: str,
    key: str,
    *,
    schema: SchemaLike,
    page: Optional[int] = None,
    parallelism: Optional[int] = None,
    blocks_of: Optional[int] = None,
    on_lost_position: str = "fail",
    authority: Optional[str] = None,
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the rows of a table, in the order of a unique key.

    ``schema`` are the columns that are read. With ``parallelism``, the key is an integer and the
    instances share blocks of ``blocks_of`` keys. ``authority`` is the PEM file of the authority that
    has signed the server's certificate, and enables TLS.
    """
    options = (page, parallelism, blocks_of, on_lost_position, authority, on_error)
    plan = {"table": table, "query": None, **_source(url, key, schema, *options)}
    return SystemSource("postgres", plan, f"postgres.read({table!r})")


def query(
    url: str,
    select: str,
    key: str,
    *,
    schema: SchemaLike,
    page: Optional[int] = None,
    parallelism: Optional[int] = None,
    blocks_of: Optional[int] = None,
    on_lost_position: str = "fail",
    authority: Optional[str] = None,
    on_error: str = "dead_letter",
) -> SystemSource:
    """Returns a source of the rows of a ``select``, in the order of its column ``key``. See
    ``read`` for the options."""
    options = (page, parallelism, blocks_of, on_lost_position, authority, on_error)
    plan = {"table": None, "query": select, **_source(url, key, schema, *options)}
    return SystemSource("postgres", plan, "postgres.query(..)")


def write(
    url: str,
    table: str,
    *,
    columns: Optional[Sequence[str]] = None,
    upsert: Optional[Union[str, Sequence[str]]] = None,
    exactly_once: bool = False,
    on_replaced: str = "fail",
    parallelism: Optional[int] = None,
    authority: Optional[str] = None,
    on_error: str = "dead_letter",
) -> SystemSink:
    """Returns a sink that writes each record as a row of a table.

    ``columns`` are those that are written, all by default. ``upsert`` are the columns of a unique
    key: the last record of a key replaces its row. With ``exactly_once`` the rows of an epoch become
    visible at its commit.
    """
    plan = {
        "url": url,
        "table": table,
        "columns": None if columns is None else names(columns),
        "upsert": None if upsert is None else names(upsert),
        "exactly_once": exactly_once,
        "continues_if_replaced": lost_position(on_replaced) == "continue",
        "parallelism": parallelism,
        "authority": authority,
        "on_error": policy(on_error),
    }
    return SystemSink("postgres", plan, f"postgres.write({table!r})")


def _source(
    url: str,
    key: str,
    schema: SchemaLike,
    page: Optional[int],
    parallelism: Optional[int],
    blocks_of: Optional[int],
    on_lost_position: str,
    authority: Optional[str],
    on_error: str,
) -> Dict[str, Any]:
    return {
        "url": url,
        "key": key,
        "fields": fields_of(schema),
        "page": page,
        "parallelism": parallelism,
        "blocks_of": blocks_of,
        "on_lost_position": lost_position(on_lost_position),
        "authority": authority,
        "on_error": policy(on_error),
    }
