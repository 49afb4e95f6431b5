"""The live table of a notebook."""

import sys
import types
from typing import Any, List

import pytest

import ardea as a


class Handle:
    """The output of a cell."""

    def __init__(self, shown: List[str]) -> None:
        self.shown = shown

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_a_live_table_shows_the_latest_record_of_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: List[str] = []
    display: Any = types.ModuleType("IPython.display")
    display.HTML = str

    def show(html: str, display_id: bool) -> Handle:
        shown.append(html)
        return Handle(shown)

    display.display = show
    package: Any = types.ModuleType("IPython")
    package.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    p = a.Pipeline("table")
    rows = [{"k": "<a>", "v": 1}, {"k": "b", "v": 2}, {"k": "<a>", "v": 3}]
    p.read(a.items(rows)).live_table("k")
    p.run()
    assert "<td>&lt;a&gt;</td><td>3</td>" in shown[-1]
    assert "<td>1</td>" not in shown[-1]


def test_without_a_notebook_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    p = a.Pipeline("table")
    p.read(a.items([{"k": 1}])).live_table("k")
    with pytest.raises(a.Error):
        p.run()


def test_collected_records_have_a_table() -> None:
    p = a.Pipeline("collected")
    out = p.read(a.items([{"k": n} for n in range(30)])).collect()
    p.run()
    assert "<td>19</td>" in out._repr_html_()
    assert "20 of 30 rows" in out._repr_html_()
