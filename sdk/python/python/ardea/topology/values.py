"""The values of tuples as JSON documents of the instance protocol."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, List, Sequence, Union

#: A value of a tuple; a list has such values.
Value = Union[None, bool, int, float, str, bytes, List[Any]]

_INTEGERS = range(-(1 << 63), 1 << 63)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ENCODED_SCALARS = (str, bool, type(None))


def encoded(document: Any) -> bytes:
    """Returns a document as bytes."""
    return _ENCODER.encode(document).encode("utf-8", "surrogatepass")


def plain(values: Sequence[Any]) -> List[Any]:
    """Returns values in the form of the protocol.

    Raises ``TypeError`` for a value that a tuple cannot have.
    """
    return [value if type(value) in _ENCODED_SCALARS else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise TypeError(f"the integer {value} has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": _name_of(value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return plain(value)
    raise TypeError(
        f"a tuple has no values of the type {type(value).__name__}: use None, bool, int, float, str,"
        " bytes or a list of them"
    )


def _name_of(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "inf" if value > 0 else "-inf"


def decoded(record: bytes) -> List[Any]:
    """Returns the values of a document."""
    values = json.loads(record, object_hook=_special)
    if not isinstance(values, list):
        raise ValueError(f"a tuple is a list, and not {values!r}")
    return values


def _special(document: Any) -> Value:
    """Returns the value of an object: bytes, or a float that JSON lacks."""
    if len(document) == 1:
        if "base64" in document:
            return base64.b64decode(document["base64"], validate=True)
        if document.get("float") in ("NaN", "inf", "-inf"):
            return float(document["float"])
    raise ValueError(f"a tuple has no value {document!r}")
