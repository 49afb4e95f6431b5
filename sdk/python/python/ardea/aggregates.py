"""Aggregates of groups and windows."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union

from .expressions import Expr, col


class Aggregate:
    """An aggregate of the records of a group.

    All but the count of records ignore null. The result is null if no value was aggregated, unless
    it is a count.
    """

    __slots__ = ("_argument", "_function")

    def __init__(self, function: str, argument: Optional[Expr]) -> None:
        self._function = function
        self._argument = argument

    def __repr__(self) -> str:
        argument = "" if self._argument is None else self._argument.name()
        return f"Aggregate({self._function}({argument}))"

    def tree(self, alias: str) -> Dict[str, Any]:
        """Returns the aggregate as plain data, with the name of the results' column."""
        argument = None if self._argument is None else self._argument.tree()
        return {"function": self._function, "argument": argument, "alias": alias}


def _of(argument: Union[str, Expr]) -> Expr:
    return col(argument) if isinstance(argument, str) else argument


def count(argument: Optional[Union[str, Expr]] = None) -> Aggregate:
    """Returns the number of records, or of those whose argument is not null."""
    return Aggregate("count", None if argument is None else _of(argument))


def sum(argument: Union[str, Expr]) -> Aggregate:  # noqa: A001
    """Returns the total. A total of integers that exceeds 64 bits fails the job."""
    return Aggregate("sum", _of(argument))


def min(argument: Union[str, Expr]) -> Aggregate:  # noqa: A001
    """Returns the least value."""
    return Aggregate("min", _of(argument))


def max(argument: Union[str, Expr]) -> Aggregate:  # noqa: A001
    """Returns the greatest value."""
    return Aggregate("max", _of(argument))


def avg(argument: Union[str, Expr]) -> Aggregate:
    """Returns the mean, as a float."""
    return Aggregate("avg", _of(argument))
