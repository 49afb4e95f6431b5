"""Apache Kafka: topics as sources and sinks.

>>> import ardea as a
>>> a.kafka.read("localhost:9092", "flights", schema={"carrier": str, "delay": int})
kafka.read('flights')
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from .durations import Duration, microseconds
from .errors import invalid
from .messages import (
    ColumnLike,
    SystemSink,
    SystemSource,
    column,
    lost_position,
    message_plan,
    names,
    outgoing_plan,
)
from .schemas import SchemaLike
from .times import micros_of, timestamp_of

#: The parts of a message beside its value, by the names of their columns.
METADATA = ("key", "topic", "partition", "offset", "timestamp")


class Topics:
    """All topics whose whole name matches a regular expression; made by ``matching``."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def __repr__(self) -> str:
        return f"matching({self.pattern!r})"


def matching(pattern: str) -> Topics:
    """Returns all topics whose whole name matches a regular expression, also later ones."""
    return Topics(pattern)


class Start:
    """A start position of a source; see ``at``, ``stored`` and ``positions``."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan


def at(time: Union[datetime, float]) -> Start:
    """Returns the position of the first record with this time or a later one."""
    return Start({"at": micros_of(timestamp_of(time))})


def stored(group: str) -> Start:
    """Returns the committed offsets of a consumer group."""
    return Start({"stored": group})


def positions(offsets: Mapping[str, Mapping[int, int]]) -> Start:
    """Returns the given offsets, by topic and partition."""
    plan = {
        topic: {str(partition): offset for partition, offset in of.items()}
        for topic, of in offsets.items()
    }
    return Start({"positions": plan})


class Tls:
    """The encryption of connections to brokers. Files are in the format PEM.

    Without ``ca_file`` the certificates of the system are trusted. ``client_certificate`` are the
    files of a certificate and of its key.
    """

    def __init__(
        self,
        *,
        ca_file: Optional[str] = None,
        client_certificate: Optional[Tuple[str, str]] = None,
        key_password: Optional[str] = None,
        accept_any_host_name: bool = False,
    ) -> None:
        self.plan = {
            "ca_file": ca_file,
            "client_certificate": client_certificate,
            "key_password": key_password,
            "accepts_any_host_name": accept_any_host_name,
        }


class Sasl:
    """The user and the mechanism of authentication; see ``sasl``."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        mechanisms = ("plain", "scram_sha256", "scram_sha512")
        if mechanism not in mechanisms:
            hint = f"the mechanisms are {', '.join(mechanisms)}"
            raise invalid(f"there is no mechanism {mechanism!r}", hint)
        self.plan = {"mechanism": mechanism, "user": user, "password": password}


def sasl(user: str, password: str, *, mechanism: str = "scram_sha512") -> Sasl:
    """Returns a user with a password. The mechanisms are ``scram_sha512``, ``scram_sha256`` and
    ``plain``, which needs TLS."""
    return Sasl(mechanism, user, password)


class SchemaRegistry:
    """The address of a schema registry with the REST interface of Confluent's, and how to
    authenticate there: with ``user`` and ``password``, or with a ``token``.

    A job waits for a registry that does not answer, or fails after ``give_up_after``.
    """

    def __init__(
        self,
        url: str,
        *,
        user: Optional[str] = None,
        password: str = "",
        token: Optional[str] = None,
        give_up_after: Optional[Duration] = None,
    ) -> None:
        if user is not None and token is not None:
            raise invalid("a registry has a user or a token, and not both")
        self.plan = {
            "url": url,
            "basic_auth": None if user is None else (user, password),
            "bearer_token": token,
            "give_up_after": None if give_up_after is None else microseconds(give_up_after),
        }


class RegistryFormat:
    """Values with a schema of a registry; made by ``avro`` and ``protobuf``."""

    def __init__(self, plan: Dict[str, Any]) -> None:
        self.plan = plan


def avro(
    registry: SchemaRegistry,
    schema: Optional[str] = None,
    *,
    subject: Optional[str] = None,
    registered_only: bool = False,
) -> RegistryFormat:
    """Returns the format of values in Avro.

    A sink needs the ``schema`` of its values, a JSON text: a record whose fields are columns of
    numbers, booleans and texts. It is registered under ``subject``, which is ``TOPIC-value`` by
    default, unless ``registered_only`` is set. A source converts values to ``schema`` by Avro's
    rules, if it is given.
    """
    return RegistryFormat(
        {
            "format": "avro",
            **registry.plan,
            "schema": schema,
            "message": None,
            "subject": subject,
            "registered_only": registered_only,
        }
    )


def protobuf(
    registry: SchemaRegistry,
    schema: Optional[str] = None,
    *,
    message: Optional[str] = None,
    subject: Optional[str] = None,
    registered_only: bool = False,
) -> RegistryFormat:
    """Returns the format of values as Protocol Buffers.

    A sink needs the ``schema``, the text of a ``.proto`` file, and converts columns by the JSON
    mapping to ``message``, by default the first one. See ``avro`` for the other options.
    """
    return RegistryFormat(
        {
            "format": "protobuf",
            **registry.plan,
            "schema": schema,
            "message": message,
            "subject": subject,
            "registered_only": registered_only,
        }
    )


def read(
    brokers: str,
    topics: Union[str, Sequence[str], Topics],
    *,
    schema: Optional[SchemaLike] = None,
    format: Union[str, RegistryFormat] = "json",
    metadata: Sequence[str] = (),
    start: Union[str, Start] = "earliest",
    until_present: bool = False,
    parallelism: Optional[int] = None,
    out_of_order: Duration = "0s",
    idle_after: Optional[Duration] = "10s",
    max_ahead: Optional[Duration] = "1d",
    group: Optional[str] = None,
    look_for_partitions_every: Optional[Duration] = None,
    on_lost_position: str = "fail",
    on_error: str = "dead_letter",
    require_timestamps: bool = False,
    skip_damaged_batches: bool = False,
    tls: Optional[Tls] = None,
    sasl: Optional[Sasl] = None,
    properties: Optional[Mapping[str, str]] = None,
) -> SystemSource:
    """Returns a source of the messages of topics.

    ``format`` is that of the values: ``"json"`` objects with the fields of ``schema``, or
    ``"text"`` or ``"bytes"`` in the column ``value``, which is null for a tombstone. With
    ``avro(registry)`` and ``protobuf(registry)`` a column is a field, or its path: ``bid.price``.
    ``metadata`` are further columns: ``key``, ``topic``, ``partition``, ``offset`` and
    ``timestamp``; values with a registry have none.

    ``start`` is ``"earliest"``, ``"latest"``, or ``at(time)``, ``stored(group)`` or
    ``positions({..})``. With ``until_present`` the source ends at the offsets that the partitions
    have at the start. ``with_source_time()`` uses the times of the messages, which are at most
    ``out_of_order`` late. The other options are those of the source in Rust.
    """
    chosen = start.plan if isinstance(start, Start) else start
    if isinstance(chosen, str) and chosen not in ("earliest", "latest"):
        raise invalid(f"start is {chosen!r}", 'use "earliest", "latest", or kafka.at(time)')
    registry = format.plan if isinstance(format, RegistryFormat) else None
    if registry is not None and metadata:
        raise invalid("messages with a schema registry have no columns of metadata")
    form = format if isinstance(format, str) else "json"
    every = look_for_partitions_every
    plan: Dict[str, Any] = {
        "brokers": brokers,
        "topics": {"matching": topics.pattern} if isinstance(topics, Topics) else {"names": names(topics)},
        "messages": message_plan(schema, form, metadata, on_error, METADATA),
        "registry": registry,
        "start": chosen,
        "until_present": until_present,
        "parallelism": parallelism,
        "out_of_order": microseconds(out_of_order),
        "idle_after": None if idle_after is None else microseconds(idle_after),
        "max_ahead": None if max_ahead is None else microseconds(max_ahead),
        "group": group,
        "look_for_partitions_every": None if every is None else microseconds(every),
        "on_lost_position": lost_position(on_lost_position),
        "require_timestamps": require_timestamps,
        "skip_damaged_batches": skip_damaged_batches,
        "security": _security(tls, sasl),
        "properties": dict(properties or {}),
    }
    return SystemSource("kafka", plan, f"kafka.read({topics!r})")


def write(
    brokers: str,
    topic: str,
    *,
    key: Optional[ColumnLike] = None,
    value: Optional[ColumnLike] = None,
    format: Optional[RegistryFormat] = None,
    at_least_once: bool = False,
    hold_at_most: Optional[int] = None,
    parallelism: Optional[int] = None,
    on_error: str = "dead_letter",
    tls: Optional[Tls] = None,
    sasl: Optional[Sasl] = None,
    properties: Optional[Mapping[str, str]] = None,
) -> SystemSink:
    """Returns a sink that writes each record to a topic.

    The value is a JSON object of all columns, or the text or bytes of ``value``; null is a
    tombstone. ``key`` and ``value`` are columns or expressions. With the ``format`` of ``avro`` or
    ``protobuf``, the value is a record of all columns. A job with the guarantee
    exactly-once writes in transactions, unless ``at_least_once`` is set; ``hold_at_most`` bounds the
    bytes that wait for their commit.
    """
    if format is not None and value is not None:
        raise invalid("the value of a message is an expression, or has a schema, and not both")
    if format is not None and format.plan["schema"] is None:
        raise invalid("a sink with a registry needs a schema", "write kafka.avro(registry, schema)")
    plan = {
        "brokers": brokers,
        "topic": topic,
        "registry": None if format is None else format.plan,
        "outgoing": outgoing_plan(value, on_error),
        "key": None if key is None else column(key).tree(),
        "parallelism": parallelism,
        "at_least_once": at_least_once,
        "hold_at_most": hold_at_most,
        "security": _security(tls, sasl),
        "properties": dict(properties or {}),
    }
    return SystemSink("kafka", plan, f"kafka.write({topic!r})")


def _security(tls: Optional[Tls], sasl: Optional[Sasl]) -> Dict[str, Any]:
    return {"tls": tls and tls.plan, "sasl": sasl and sasl.plan}
