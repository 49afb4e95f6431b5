"""Tuples that a bolt receives."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Union, overload


class Input:
    """A stream that a bolt subscribes to."""

    __slots__ = ("component", "fields", "indexes", "stream")

    def __init__(self, component: str, stream: str, fields: Sequence[str]) -> None:
        self.component = component
        self.stream = stream
        self.fields = tuple(fields)
        self.indexes: Dict[str, int] = {name: index for index, name in enumerate(fields)}


class TupleAddress(NamedTuple):
    """The address of a tuple on the connection: its batch and row."""

    sequence: int
    row: int


class Tuple(Sequence[Any]):
    """A tuple: values under the names of its stream's fields.

    ``tuple["word"]`` is the value of a field, ``tuple[0]`` the first one. The values are None, bool,
    int, float, str, bytes, or lists of these.
    """

    __slots__ = ("_input", "_values", "address")

    def __init__(self, source: Input, values: List[Any], address: TupleAddress) -> None:
        self._input = source
        self._values = values
        #: The address of the tuple. Internal.
        self.address = address

    @overload
    def __getitem__(self, key: Union[int, str]) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> List[Any]: ...

    def __getitem__(self, key: Union[int, str, slice]) -> Any:
        if not isinstance(key, str):
            return self._values[key]
        index = self._input.indexes.get(key)
        if index is None:
            fields = ", ".join(self._input.fields)
            stream = f"the stream {self.stream!r} of {self.component!r}"
            raise KeyError(f"{stream} has no field {key!r}: its fields are {fields}")
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Tuple({self.to_dict()!r})"

    @property
    def component(self) -> str:
        """The component that has emitted the tuple."""
        return self._input.component

    @property
    def stream(self) -> str:
        """The stream of the tuple."""
        return self._input.stream

    @property
    def fields(self) -> Sequence[str]:
        """The names of the fields."""
        return self._input.fields

    def to_dict(self) -> Dict[str, Any]:
        """Returns the values by the names of their fields."""
        return dict(zip(self._input.fields, self._values))
