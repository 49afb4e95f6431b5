"""Event-time windows."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .durations import Duration, microseconds


class Window:
    """The assignment of records to windows of event time."""

    __slots__ = ("_lateness", "_offset", "_shape")

    def __init__(self, shape: Dict[str, Any], offset: int = 0, lateness: int = 0) -> None:
        self._shape = shape
        self._offset = offset
        self._lateness = lateness

    def offset(self, offset: Duration) -> Window:
        """Moves the windows: days that start at 06:00 UTC have an offset of ``"6h"``."""
        return Window(self._shape, microseconds(offset), self._lateness)

    def allowed_lateness(self, lateness: Duration) -> Window:
        """Accepts records up to ``lateness`` after the end of their window, and emits corrected
        results."""
        return Window(self._shape, self._offset, microseconds(lateness))

    def tree(self) -> Dict[str, Any]:
        """Returns the windows as plain data."""
        return {
            "shape": self._shape,
            "offset_micros": self._offset,
            "lateness_micros": self._lateness,
        }


def tumbling(length: Duration, *, offset: Optional[Duration] = None) -> Window:
    """Returns consecutive windows of a length, aligned to the Unix epoch."""
    return sliding(length, length, offset=offset)


def sliding(length: Duration, slide: Duration, *, offset: Optional[Duration] = None) -> Window:
    """Returns windows of a length, one starting every ``slide``. The length is a multiple of the
    slide."""
    shape = {"length_micros": microseconds(length), "slide_micros": microseconds(slide)}
    window = Window({"sliding": shape})
    return window if offset is None else window.offset(offset)


def session(gap: Duration) -> Window:
    """Returns windows that end when no record of the key has arrived for ``gap`` of event time."""
    return Window({"session": {"gap_micros": microseconds(gap)}})


def daily(zone: str) -> Window:
    """Returns local days of a time zone of the IANA database, such as ``"Europe/Berlin"``."""
    return Window({"daily": {"zone": zone}})


def monthly(zone: str) -> Window:
    """Returns local months of a time zone."""
    return Window({"monthly": {"zone": zone}})
