"""Selections of the records with the greatest values."""

from __future__ import annotations

from typing import Any, Dict

from .errors import invalid
from .messages import ColumnLike, column


class TopRecords:
    """A selection of the records of a group; made by ``top_n`` and ``all_with_max``."""

    __slots__ = ("_tree",)

    def __init__(self, tree: Dict[str, Any]) -> None:
        self._tree = tree

    def tree(self) -> Dict[str, Any]:
        """Returns the selection as plain data."""
        return self._tree


def top_n(n: int, *by: ColumnLike) -> TopRecords:
    """Returns a selection of the ``n`` records with the greatest values: of the first column or
    expression, then of the next one where the first is equal."""
    if n < 1:
        raise invalid(f"the number of selected records is {n}", "select at least one")
    return _selection({"most": n}, by)


def all_with_max(*by: ColumnLike) -> TopRecords:
    """Returns a selection of all records with the greatest values."""
    return _selection("ties", by)


def _selection(limit: Any, by: Any) -> TopRecords:
    if not by:
        raise invalid("a selection has no column", 'name one, as in top_n(10, "price")')
    return TopRecords({"by": [column(of).tree() for of in by], "limit": limit})
