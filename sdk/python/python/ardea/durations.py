"""Durations: texts such as ``"5s"`` and ``"100ms"``, or ``datetime.timedelta``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Union

from .errors import invalid

Duration = Union[str, timedelta]

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d)")


def microseconds(duration: Duration) -> int:
    """Returns a duration in microseconds.

    Raises ``ardea.Error`` if it is negative or cannot be read.
    """
    if isinstance(duration, timedelta):
        length = duration // timedelta(microseconds=1)
    else:
        found = _PATTERN.fullmatch(duration.strip()) if isinstance(duration, str) else None
        if found is None:
            raise invalid(
                f"{duration!r} is no duration", 'write a number with a unit, such as "5s" or "100ms"'
            )
        length = round(float(found.group(1)) * _MICROSECONDS[found.group(2)])
    if length < 0:
        raise invalid(f"the duration {duration!r} is negative")
    return length
