"""Types of columns, and schemas."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union, get_type_hints

from .errors import invalid

#: A type of a column: a Python type, or the name of an Arrow type.
ColumnType = Union[type, str]

#: A schema: types by name, a ``pyarrow.Schema``, a ``TypedDict`` or a data class.
SchemaLike = Union[Mapping[str, ColumnType], type, Any]

#: A field: its name, its type as plain data, and whether it may be null.
Field = Tuple[str, Any, bool]

_PYTHON_TYPES: Dict[type, str] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "binary",
    datetime: "timestamp[us]",
    date: "date32",
}

_ARROW_TYPES: Dict[str, Any] = {
    "bool": "Boolean",
    "boolean": "Boolean",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "int": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float": "Float32",
    "float32": "Float32",
    "double": "Float64",
    "float64": "Float64",
    "string": "Utf8",
    "str": "Utf8",
    "utf8": "Utf8",
    "large_string": "LargeUtf8",
    "string_view": "Utf8View",
    "binary": "Binary",
    "large_binary": "LargeBinary",
    "date": "Date32",
    "date32": "Date32",
    "date32[day]": "Date32",
    "timestamp": {"Timestamp": ["Microsecond", None]},
}
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def data_type(of: ColumnType) -> Any:
    """Returns a type of a column as plain data.

    Raises ``ardea.Error`` if there is no such type.
    """
    name = _PYTHON_TYPES.get(of) if isinstance(of, type) else of
    if isinstance(name, str):
        found = _ARROW_TYPES.get(name)
        if found is None and name.startswith("timestamp[") and name.endswith("]"):
            unit, _, zone = name[len("timestamp[") : -1].partition(",")
            zone = zone.strip()
            zone = zone[3:] if zone.startswith("tz=") else zone
            if unit.strip() in _UNITS:
                found = {"Timestamp": [_UNITS[unit.strip()], zone or None]}
        if found is not None:
            return found
    raise invalid(
        f"{of!r} is no type of a column",
        "use int, float, str, bool, bytes, datetime, date, or a name such as "
        '"uint64", "float32" or "timestamp[ms]"',
    )


def fields_of(schema: SchemaLike) -> List[Field]:
    """Returns the fields of a schema.

    All columns may be null, unless a ``pyarrow.Schema`` or an annotation says otherwise: the
    columns of a data class or ``TypedDict`` are null only if their type is ``Optional``.
    """
    if isinstance(schema, Mapping):
        return [(name, data_type(of), True) for name, of in schema.items()]
    if isinstance(schema, type) and is_record_class(schema):
        return [_annotated(name, of) for name, of in get_type_hints(schema).items()]
    if hasattr(schema, "__arrow_c_schema__") and hasattr(schema, "names"):
        fields: Any = schema
        return [(field.name, data_type(str(field.type)), field.nullable) for field in fields]
    raise invalid(
        f"{schema!r} is no schema",
        'give the types by name, such as {"price": int}, a pyarrow.Schema, a TypedDict or a data class',
    )


def is_record_class(of: Any) -> bool:
    """Returns true for a data class, a ``TypedDict`` or a ``NamedTuple``."""
    is_typed_dict = isinstance(of, type) and issubclass(of, dict) and hasattr(of, "__total__")
    is_named_tuple = isinstance(of, type) and issubclass(of, tuple) and hasattr(of, "_fields")
    return dataclasses.is_dataclass(of) or is_typed_dict or is_named_tuple


def _annotated(name: str, of: Any) -> Field:
    inner = _optional(of)
    return (name, data_type(of if inner is None else inner), inner is not None)


def _optional(of: Any) -> Optional[type]:
    """Returns the type within ``Optional``; ``None`` for other types."""
    parts = getattr(of, "__args__", ())
    if len(parts) == 2 and type(None) in parts:
        (inner,) = (part for part in parts if part is not type(None))
        return inner if isinstance(inner, type) else None
    return None
