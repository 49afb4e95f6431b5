"""Files as sources and sinks."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Sequence, Union

from .durations import Duration, microseconds
from .errors import invalid
from .schemas import SchemaLike, fields_of

Path = Union[str, "os.PathLike[str]"]


class Files:
    """A file, or the files of a directory: a source, or a sink.

    Created by ``ardea.files.json``, ``ardea.files.csv`` and ``ardea.files.parquet``.
    """

    def __init__(self, format: str, path: Path, options: Dict[str, Any]) -> None:
        self._format = format
        self._path = os.fspath(path)
        self._options = options

    def __repr__(self) -> str:
        return f"files.{self._format}({self._path!r})"

    def source(self) -> Dict[str, Any]:
        """Returns the source as plain data."""
        names = ("columns", "fields", "suffix", "in_order", "delimiter", "on_error")
        return {"files": self._of(names)}

    def sink(self) -> Dict[str, Any]:
        """Returns the sink as plain data."""
        return {"files": self._of(("delimiter", "rotate_bytes", "rotate_micros", "rotates_with_epochs"))}

    def _of(self, names: Sequence[str]) -> Dict[str, Any]:
        of = {"format": self._format, "path": self._path}
        of.update({name: self._options[name] for name in names if name in self._options})
        return of


def json(
    path: Path,
    *,
    columns: Optional[Sequence[str]] = None,
    schema: Optional[SchemaLike] = None,
    suffix: Optional[str] = None,
    in_order: bool = False,
    on_error: str = "dead_letter",
    rotate_bytes: Optional[int] = None,
    rotate_after: Optional[Duration] = None,
    rotate_with_epochs: bool = False,
) -> Files:
    """Returns a file with one JSON object per line, as a source or a sink.

    As a source, ``path`` may be a directory or a pattern of file names; ``suffix`` selects the
    files of a directory. Types are inferred
    from the first 1,000 records, unless ``schema`` gives them; ``columns`` are the fields to read.
    ``bid.price`` is the field ``price`` of the object ``bid``. A record that cannot be decoded
    becomes a dead letter, unless ``on_error`` is ``"fail"`` or ``"drop"``. ``in_order`` reads with
    one instance.

    As a sink, the file gets its name when it is complete. With ``rotate_bytes``, ``rotate_after``
    or ``rotate_with_epochs`` the files are numbered.
    """
    options = _options(columns, schema, suffix, in_order, on_error)
    options.update(_rotation(rotate_bytes, rotate_after, rotate_with_epochs))
    return Files("json", path, options)


def csv(
    path: Path,
    *,
    columns: Optional[Sequence[str]] = None,
    schema: Optional[SchemaLike] = None,
    suffix: Optional[str] = None,
    in_order: bool = False,
    delimiter: str = ",",
    on_error: str = "dead_letter",
    rotate_bytes: Optional[int] = None,
    rotate_after: Optional[Duration] = None,
    rotate_with_epochs: bool = False,
) -> Files:
    """Returns a CSV file with a header, as a source or a sink. See ``json`` for the options."""
    if len(delimiter.encode()) != 1:
        raise invalid(f"the delimiter {delimiter!r} is not a single byte")
    options = _options(columns, schema, suffix, in_order, on_error)
    options["delimiter"] = ord(delimiter)
    options.update(_rotation(rotate_bytes, rotate_after, rotate_with_epochs))
    return Files("csv", path, options)


def parquet(
    path: Path,
    *,
    columns: Optional[Sequence[str]] = None,
    schema: Optional[SchemaLike] = None,
    suffix: Optional[str] = None,
    in_order: bool = False,
    on_error: str = "dead_letter",
    rotate_bytes: Optional[int] = None,
    rotate_after: Optional[Duration] = None,
    rotate_with_epochs: bool = False,
) -> Files:
    """Returns a Parquet file, as a source or a sink. Only the chosen ``columns`` are read. See
    ``json`` for the other options."""
    options = _options(columns, schema, suffix, in_order, on_error)
    options.update(_rotation(rotate_bytes, rotate_after, rotate_with_epochs))
    return Files("parquet", path, options)


def _options(
    columns: Optional[Sequence[str]],
    schema: Optional[SchemaLike],
    suffix: Optional[str],
    in_order: bool,
    on_error: str,
) -> Dict[str, Any]:
    if columns is not None and schema is not None:
        raise invalid("both columns and a schema are given", "give the schema only")
    if isinstance(columns, str):
        columns = [columns]
    return {
        "columns": None if columns is None else list(columns),
        "fields": None if schema is None else fields_of(schema),
        "suffix": suffix,
        "in_order": in_order,
        "on_error": on_error,
    }


def _rotation(
    rotate_bytes: Optional[int], rotate_after: Optional[Duration], rotate_with_epochs: bool
) -> Dict[str, Any]:
    return {
        "rotate_bytes": rotate_bytes,
        "rotate_micros": None if rotate_after is None else microseconds(rotate_after),
        "rotates_with_epochs": rotate_with_epochs,
    }
