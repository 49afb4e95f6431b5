"""Collections as sources."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from .inference import inferred_fields
from .rows import dump
from .schemas import Field, SchemaLike, fields_of

#: The column of streams whose records are Python objects and not rows of columns.
OBJECT_COLUMN = "__object__"

#: The number of records of a batch of a collection.
BATCH_ROWS = 1024

#: The fields of such streams.
OBJECT_FIELDS: List[Field] = [(OBJECT_COLUMN, "Binary", False)]


class Items:
    """The records of a collection, as a source; made by ``ardea.items``."""

    def __init__(
        self,
        records: Iterable[Any],
        schema: Optional[SchemaLike] = None,
        batch_rows: int = BATCH_ROWS,
        repeat: int = 1,
    ) -> None:
        self._records = list(records)
        self._options = {"batch_rows": batch_rows, "repeat": repeat}
        self._fields = inferred_fields(self._records) if schema is None else fields_of(schema)

    def __repr__(self) -> str:
        return f"items({len(self._records)} records)"

    def has_columns(self) -> bool:
        """Returns true if the records are rows of columns, and not other objects."""
        return self._fields is not None

    def fields(self) -> List[Field]:
        """Returns the columns."""
        return OBJECT_FIELDS if self._fields is None else self._fields

    def values(self) -> List[Any]:
        """Returns the records as rows, or as bytes of objects."""
        if self._fields is None:
            return [dump(record) for record in self._records]
        return self._records

    def source(self, values: int) -> Dict[str, Any]:
        """Returns the source as plain data, with the index of its values."""
        return {"items": {"fields": self.fields(), "values": values, **self._options}}


def items(records: Iterable[Any], schema: Optional[SchemaLike] = None) -> Items:
    """Returns a source of the records of a collection, for tests and small tables.

    Dictionaries with values of one type for each name are rows of columns. ``schema`` gives the
    types. Other records are objects, for functions only.
    """
    return Items(records, schema)
