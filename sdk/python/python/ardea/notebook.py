"""A live table in a notebook."""

from __future__ import annotations

import html
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from .durations import Duration, microseconds
from .errors import invalid


class DisplayHandle(Protocol):
    """A handle of an output that can be replaced, such as that of ``IPython.display``."""

    def update(self, shown: Any) -> None:
        """Replaces the output."""


class LiveTable:
    """A table of the latest record of each key, shown while the job runs."""

    def __init__(self, key: Sequence[str], every: Duration, rows: int) -> None:
        self._key = list(key)
        self._every_s = microseconds(every) / 1_000_000
        self._rows = rows
        self._records: Dict[Any, Dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._shown_s = 0.0
        self._handle: Optional[DisplayHandle] = None

    def __call__(self, record: Dict[str, Any]) -> None:
        key = tuple(record[name] for name in self._key)
        with self._lock:
            # The latest records stand first.
            self._records.pop(key, None)
            self._records[key] = record
            now = time.monotonic()
            if now - self._shown_s < self._every_s:
                return
            self._shown_s = now
        self.show()

    def show(self) -> None:
        """Shows the present records."""
        with self._lock:
            records = list(self._records.values())[::-1][: self._rows]
            total = len(self._records)
        shown = _display().HTML(html_table(records, total))
        if self._handle is None:
            self._handle = _display().display(shown, display_id=True)
        else:
            self._handle.update(shown)


def html_table(records: List[Dict[str, Any]], total: int) -> str:
    """Returns records as a table, with a line if there are more."""
    names = list(records[0]) if records else []
    cell: Callable[[str, Any], str] = lambda tag, value: f"<{tag}>{html.escape(str(value))}</{tag}>"
    head = "".join(cell("th", name) for name in names)
    lines = ["".join(cell("td", record.get(name)) for name in names) for record in records]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = f"<p>{len(records)} of {total} rows</p>" if total > len(records) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _display() -> Any:
    try:
        from IPython import display  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise invalid("a live table is shown in a notebook only", "use print() instead") from error
    return display
