"""Results collected in memory."""

from __future__ import annotations

import html
import pickle
from typing import Any, Iterator, List

from . import _ardea
from .notebook import html_table


class Collected:
    """The records of a stream, in the memory of this process, after the job has run."""

    def __init__(self, has_objects: bool) -> None:
        self._has_objects = has_objects
        self._batches: List[_ardea.RecordBatch] = []

    def batches(self) -> List[_ardea.RecordBatch]:
        """Returns the records as Arrow batches, for ``pyarrow.record_batch`` and
        ``polars.DataFrame``."""
        return list(self._batches)

    def rows(self) -> List[Any]:
        """Returns the records: dictionaries, or the objects that a function has returned."""
        rows: List[Any] = []
        for batch in self._batches:
            rows.extend(_ardea.rows_of(batch))
        return [pickle.loads(row) for row in rows] if self._has_objects else rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __repr__(self) -> str:
        return f"Collected({len(self)} records)"

    def _repr_html_(self) -> str:
        """Returns the first records as a table, for notebooks."""
        if self._has_objects:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return html_table(self.rows()[:20], len(self))

    def _set(self, batches: List[_ardea.RecordBatch]) -> None:
        self._batches = batches
