"""The examples of the documentation run."""

import json
import re
import sys
import types
from pathlib import Path
from typing import Iterator, Tuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "docs" / "python.md",
    REPOSITORY / "sdk" / "python" / "README.md",
]
BIDS = [
    {"auction": n % 2, "price": 5 * n, "date_time": f"2020-01-01T00:00:{n:02}Z"} for n in range(10)
]


def examples() -> Iterator[Tuple[str, str]]:
    for document in DOCUMENTS:
        text = document.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 1
            yield f"{document.relative_to(REPOSITORY)}:{line}", block.group(1)


@pytest.mark.parametrize(("place", "code"), list(examples()))
def test_an_example_runs_in_an_empty_folder(
    place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bids.jsonl").write_text("".join(json.dumps(bid) + "\n" for bid in BIDS))
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(compile(code, place, "exec"), module.__dict__)


def test_each_document_has_examples() -> None:
    documents = {place.partition(":")[0] for place, _ in examples()}
    assert documents == {str(document.relative_to(REPOSITORY)) for document in DOCUMENTS}
