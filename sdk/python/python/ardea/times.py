"""Conversion of times."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)


def datetime_of(micros: int) -> datetime:
    """Returns a time without a zone, given in microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def aware_datetime_of(micros: int) -> datetime:
    """Returns a time in UTC, given in microseconds since 1970."""
    return _EPOCH_UTC + timedelta(microseconds=micros)


def date_of(days: int) -> date:
    """Returns a date, given in days since 1970."""
    return date.fromordinal(_FIRST_DAY + days)


def micros_of(time: Any) -> int:
    """Returns a time in microseconds since 1970. A time without a zone is in UTC."""
    if isinstance(time, datetime):
        return (time - (_EPOCH if time.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND
    raise TypeError(f"expected a datetime, found {type(time).__name__}")


def days_of(day: Any) -> int:
    """Returns a date in days since 1970."""
    if isinstance(day, date) and not isinstance(day, datetime):
        return day.toordinal() - _FIRST_DAY
    raise TypeError(f"expected a date, found {type(day).__name__}")


def timestamp_of(time: Any) -> datetime:
    """Returns an event time as a ``datetime``; numbers are seconds since 1970."""
    if isinstance(time, datetime):
        return time
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        return _EPOCH + timedelta(seconds=time)
    raise TypeError(f"an event time is a datetime or a number, and not {type(time).__name__}")
