"""The parts of messages that sources and sinks of other systems share."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from .errors import invalid
from .expressions import Expr, col, expression
from .schemas import SchemaLike, fields_of

#: The name of a column, or an expression.
ColumnLike = Union[str, Expr]

_POLICIES = ("fail", "dead_letter", "drop")
_LOST = ("fail", "continue")


class System:
    """A source or a sink of another system, as plain data."""

    def __init__(self, name: str, plan: Dict[str, Any], described: str) -> None:
        self._name = name
        self._plan = plan
        self._described = described

    def __repr__(self) -> str:
        return self._described


class SystemSource(System):
    """A source of another system, such as ``ardea.kafka.read(..)``."""

    def source(self) -> Dict[str, Any]:
        """Returns the source as plain data."""
        return {self._name: self._plan}


class SystemSink(System):
    """A sink of another system, such as ``ardea.kafka.write(..)``."""

    def sink(self) -> Dict[str, Any]:
        """Returns the sink as plain data."""
        return {self._name: self._plan}


def message_plan(
    schema: Optional[SchemaLike],
    format: str,
    metadata: Sequence[str],
    on_error: str,
    known: Iterable[str] = (),
) -> Dict[str, Any]:
    """Returns the columns of messages as plain data. ``known`` are the parts beside the value."""
    form: Any = format
    if format == "json":
        if schema is None:
            raise invalid("the types of the messages are unknown", "give them with schema={...}")
        form = {"json": fields_of(schema)}
    elif format not in ("text", "bytes"):
        raise invalid(f"the format is {format!r}", 'the formats are "json", "text" and "bytes"')
    elif schema is not None:
        raise invalid(f'messages of the format "{format}" have the only column "value"')
    for name in metadata:
        if name not in known:
            raise invalid(f"a message has no {name!r}", f"it has {', '.join(known)}")
    return {"format": form, "metadata": list(metadata), "on_error": policy(on_error)}


def outgoing_plan(value: Optional[ColumnLike], on_error: str) -> Dict[str, Any]:
    """Returns the value of messages as plain data; by default it is a JSON object."""
    tree = None if value is None else column(value).tree()
    return {"value": tree, "on_error": policy(on_error)}


def column(of: ColumnLike) -> Expr:
    """Returns the expression of a column, or of its name."""
    return col(of) if isinstance(of, str) else expression(of)


def policy(on_error: str) -> str:
    """Checks an error policy."""
    if on_error not in _POLICIES:
        raise invalid(f"on_error is {on_error!r}", f"the policies are {', '.join(_POLICIES)}")
    return on_error


def lost_position(on_lost_position: str) -> str:
    """Checks a policy for lost positions."""
    if on_lost_position not in _LOST:
        hint = f"the policies are {', '.join(_LOST)}"
        raise invalid(f"on_lost_position is {on_lost_position!r}", hint)
    return on_lost_position


def names(of: Union[str, Sequence[str]]) -> List[str]:
    """Returns one or several names as a list."""
    return [of] if isinstance(of, str) else list(of)
