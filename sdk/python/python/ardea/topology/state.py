"""The state of a component in checkpoints."""

from __future__ import annotations

import pickle
from typing import Any, Dict, Iterator, MutableMapping, Optional, Tuple

from ..instances import NO_PARTITION


class JobFailure(Exception):
    """A failure that ends the attempt of the job, and not only the processing of a tuple."""


class State(MutableMapping[Any, Any]):
    """The state of an instance: a mapping that is part of each checkpoint.

    Keys and values are objects that can be pickled. In a bolt with a fields grouping an entry belongs
    to the values of the grouping's fields: use them, or a tuple that begins with them, as the key.
    The entry moves with them when the parallelism changes. Other entries belong to the instance.
    """

    def __init__(self) -> None:
        self._values: Dict[Any, Any] = {}
        self._partitions: Dict[Any, int] = {}
        self._own = 0
        self._partition: Optional[int] = None

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        known = self._partitions.get(key)
        if known is None:
            self._partitions[key] = self._own if self._partition is None else self._partition
        elif self._partition is not None and self._partition != known:
            raise JobFailure(
                f"the state {key!r} was set for another key of the fields grouping: an entry belongs to"
                " the values of the grouping's fields"
            )
        self._values[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._values[key]
        del self._partitions[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({self._values!r})"

    # For the engine

    def open(self, own_partition: int) -> None:
        """Sets the partition of entries without a key."""
        self._own = own_partition

    def enter(self, partition: int) -> None:
        """Begins a tuple with this partition."""
        self._partition = None if partition == NO_PARTITION else partition

    def leave(self) -> None:
        """Ends a tuple."""
        self._partition = None

    def saved(self) -> Iterator[Tuple[int, bytes, bytes]]:
        """Returns all entries: partition, key and value."""
        for key, value in self._values.items():
            yield self._partitions[key], _pickled(key, key), _pickled(key, value)

    def restore(self, partition: int, key: bytes, value: bytes) -> None:
        """Adds an entry of a checkpoint."""
        restored = pickle.loads(key)
        self._values[restored] = pickle.loads(value)
        self._partitions[restored] = partition


def _pickled(key: Any, value: Any) -> bytes:
    try:
        return pickle.dumps(value, 4)
    except Exception as error:
        raise JobFailure(f"the state {key!r} cannot be pickled: {error}") from error
