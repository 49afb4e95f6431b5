"""Functions on whole batches of records, in Arrow columns."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable, Dict, List, Optional, Union, get_type_hints, overload

from .errors import invalid
from .schemas import ColumnType, Field, SchemaLike, data_type, fields_of

#: A function from a batch to a batch, as its annotation says: ``pyarrow.RecordBatch``,
#: ``pyarrow.Table``, ``pandas.DataFrame``, ``polars.DataFrame``, or any object with the Arrow
#: PyCapsule interface.
BatchCallable = Callable[[Any], Any]

_PACKAGES = ("pyarrow", "pandas", "polars")


class BatchFunction:
    """A function on batches; made by ``ardea.batch``.

    Calling it calls the function of the user.
    """

    def __init__(
        self,
        function: BatchCallable,
        schema: Optional[SchemaLike] = None,
        adds: Optional[Dict[str, ColumnType]] = None,
    ) -> None:
        if schema is not None and adds is not None:
            raise invalid("both a schema and added columns are given", "give the schema only")
        self._function = function
        self._fields = None if schema is None else fields_of(schema)
        self._adds = None if adds is None else [(n, data_type(of), True) for n, of in adds.items()]
        self._form = _form_of(function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = function.__doc__

    def __call__(self, batch: Any) -> Any:
        return self._function(batch)

    def function(self) -> BatchCallable:
        """Returns the function that Rust calls with a batch."""
        return _Converting(self._function, self._form, self.__name__)

    def fields(self) -> Optional[List[Field]]:
        """Returns the columns of the results; ``None`` if they are those of the input."""
        return self._fields

    def added_fields(self) -> Optional[List[Field]]:
        """Returns the columns that the results have behind those of the input."""
        return self._adds


@overload
def batch(function: BatchCallable) -> BatchFunction: ...


@overload
def batch(
    *,
    schema: Optional[SchemaLike] = None,
    adds: Optional[Dict[str, ColumnType]] = None,
) -> Callable[[BatchCallable], BatchFunction]: ...


def batch(
    function: Optional[BatchCallable] = None,
    *,
    schema: Optional[SchemaLike] = None,
    adds: Optional[Dict[str, ColumnType]] = None,
) -> Union[BatchFunction, Callable[[BatchCallable], BatchFunction]]:
    """Decorates a function from a batch to a batch.

    The annotation of its parameter chooses the form of the batch: ``pyarrow.RecordBatch``,
    ``pyarrow.Table``, ``pandas.DataFrame`` or ``polars.DataFrame``. Without an annotation it is a
    ``pyarrow.RecordBatch``. Arrow and polars get the columns without a copy.

    The columns of the result are those of the input, unless ``schema`` gives others or ``adds``
    gives further ones. In a stream with event time, the result has as many records as the batch.
    """
    if function is not None:
        return BatchFunction(function)
    return lambda function: BatchFunction(function, schema, adds)


def _form_of(function: BatchCallable) -> str:
    """Returns the form of the batches that a function reads: a package, ``table`` or ``arrow``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "pyarrow"
    if not parameters:
        raise invalid(
            f"the batch function {getattr(function, '__name__', function)!r} has no parameter",
            "give it one for the batch",
        )
    annotation = parameters[0].annotation
    try:
        annotation = get_type_hints(function).get(parameters[0].name, annotation)
    except Exception:
        # A name that exists for the type checker only: its text is enough.
        pass
    if annotation is inspect.Parameter.empty or annotation is Any:
        return "pyarrow"
    if annotation == "Any":
        return "pyarrow"
    if isinstance(annotation, str):
        module, _, name = annotation.rpartition(".")
        module = {"pa": "pyarrow", "pd": "pandas", "pl": "polars"}.get(module, module)
    else:
        module = getattr(annotation, "__module__", "").split(".")[0]
        name = getattr(annotation, "__name__", "")
    if module in _PACKAGES:
        return "table" if (module, name) == ("pyarrow", "Table") else module
    if name == "RecordBatch":
        return "arrow"
    raise invalid(
        f"a batch function cannot read {annotation!r}",
        "annotate pyarrow.RecordBatch, pyarrow.Table, pandas.DataFrame or polars.DataFrame",
    )


class _Converting:
    """A function on batches that converts its argument and its result."""

    def __init__(self, function: BatchCallable, form: str, name: str) -> None:
        self._function = function
        self._form = form
        self._name = name

    def __call__(self, batch: Any) -> Any:
        result = self._function(_to_form(batch, self._form))
        return _from_result(result, self._name)


def _to_form(batch: Any, form: str) -> Any:
    if form == "arrow":
        return batch
    if form == "polars":
        return _module("polars").DataFrame(batch)
    records = _module("pyarrow").record_batch(batch)
    if form == "pandas":
        return records.to_pandas()
    if form == "table":
        return _module("pyarrow").Table.from_batches([records])
    return records


def _from_result(result: Any, name: str) -> Any:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(result, pandas.DataFrame):
        return _module("pyarrow").RecordBatch.from_pandas(result, preserve_index=False)
    if hasattr(result, "__arrow_c_array__") or hasattr(result, "__arrow_c_stream__"):
        return result
    raise TypeError(
        f"the batch function {name!r} returned {type(result).__name__}, "
        "and not a RecordBatch, Table or DataFrame"
    )


def _module(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(
            f"this batch function needs the package {name}: pip install 'ardea[{name}]'"
        ) from error
