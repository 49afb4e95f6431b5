"""``async`` functions on records, with bounded concurrency."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any, Awaitable, Callable, List, Optional, Tuple, Union

from .errors import RecordFailure, invalid
from .rows import Outcome, dump, reason_of


class AsyncFunction:
    """An ``async`` function, called with the records of a batch at the same time."""

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        *,
        limit: int,
        timeout_micros: Optional[int],
        retries: int,
        reads_objects: bool,
        writes_objects: bool,
        stops: bool,
    ) -> None:
        if not asyncio.iscoroutinefunction(function):
            raise invalid(f"map_async takes an async function, and not {function!r}")
        if limit < 1 or retries < 0:
            raise invalid(f"map_async has the limit {limit} and {retries} retries")
        self._function = function
        self._limit = limit
        self._timeout_s = None if timeout_micros is None else timeout_micros / 1_000_000
        self._retries = retries
        self._reads_objects = reads_objects
        self._writes_objects = writes_objects
        self._stops = stops

    def __call__(self, rows: List[Any]) -> Outcome:
        records = [pickle.loads(row) for row in rows] if self._reads_objects else rows
        results = asyncio.run_coroutine_threadsafe(self._all(records), _loop()).result()
        kept: List[int] = []
        values: List[Any] = []
        failures: List[Tuple[int, str]] = []
        for row, result in enumerate(results):
            if isinstance(result, _Failed):
                if self._stops:
                    raise RecordFailure(row, records[row]) from result.error
                failures.append((row, reason_of(result.error)))
                continue
            kept.append(row)
            values.append(dump(result) if self._writes_objects else result)
        return kept, values, failures or None

    async def _all(self, records: List[Any]) -> List[Any]:
        slots = asyncio.Semaphore(self._limit)

        async def one(record: Any) -> Any:
            async with slots:
                return await self._attempts(record)

        return list(await asyncio.gather(*(one(record) for record in records)))

    async def _attempts(self, record: Any) -> Union[Any, _Failed]:
        for attempt in range(self._retries + 1):
            try:
                return await asyncio.wait_for(self._function(record), self._timeout_s)
            except Exception as error:
                if attempt == self._retries:
                    return _Failed(error)
        return None


class _Failed:
    """The exception of a call."""

    def __init__(self, error: Exception) -> None:
        self.error = error


_lock = threading.Lock()
_running: List[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of this process, which runs in a thread of its own."""
    with _lock:
        if not _running:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ardea-async", daemon=True).start()
            _running.append(loop)
        return _running[0]
