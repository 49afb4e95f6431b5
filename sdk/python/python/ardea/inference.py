"""Schemas of collections of records."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Dict, List, Optional, Sequence

from .schemas import Field, data_type


def inferred_fields(records: Sequence[Any]) -> Optional[List[Field]]:
    """Returns the fields of records that are dictionaries with values of one type for each name.

    Returns ``None`` for other records.
    """
    types: Dict[str, Optional[type]] = {}
    for record in records:
        if type(record) is not dict:
            return None
        for name, value in record.items():
            if not isinstance(name, str):
                return None
            known = types.setdefault(name, None)
            kind = None if value is None else _kind_of(value)
            if value is not None and kind is None:
                return None
            if kind is None or kind is known:
                continue
            if known is not None and {known, kind} != {int, float}:
                return None
            types[name] = kind if known is None else float
    if not types or not all(types.values()):
        return None
    return [(name, data_type(of), True) for name, of in types.items() if of is not None]


def _kind_of(value: Any) -> Optional[type]:
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**63:
        return None
    return kind if kind in (bool, int, float, str, bytes, datetime, date) else None
