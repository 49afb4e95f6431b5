"""Generated numbers, for tests and measurements."""

from __future__ import annotations

from typing import Optional

from .errors import invalid
from .messages import SystemSource


def sequence(count: int, *, parallelism: Optional[int] = None) -> SystemSource:
    """Returns a source of the numbers below ``count``, in the column ``number``."""
    if count < 0:
        raise invalid(f"the number of records is {count}")
    plan = {"rate": None, "limit": count, "parallelism": parallelism}
    return SystemSource("generate", plan, f"generate.sequence({count})")


def at_rate(
    rate: int, *, limit: Optional[int] = None, parallelism: Optional[int] = None
) -> SystemSource:
    """Returns a source of the numbers 0, 1, 2 and so on in the column ``number``, each ``1 / rate``
    seconds after the previous one.

    With ``with_source_time()`` the event time of a record is the time at which it is due. The source
    has no end without a ``limit``.
    """
    if rate <= 0:
        raise invalid(f"the rate is {rate}", "give the number of records per second")
    plan = {"rate": rate, "limit": limit, "parallelism": parallelism}
    return SystemSource("generate", plan, f"generate.at_rate({rate})")
