"""The queries of the benchmark NEXMark give the results of the program ardea."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import List

import ardea as a
import pytest
from nexmark_queries import QUERIES, SIDE_KEYS

EVENTS = 20_000


def ardea(*words: str) -> None:
    program = os.environ.get("TEST_ARDEA_PROGRAM") or shutil.which("ardea")
    if not program:
        pytest.skip("there is no program ardea (TEST_ARDEA_PROGRAM)")
    done = subprocess.run(
        [program, "-q", "nexmark", *words], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nexmark") / "events.jsonl"
    ardea("generate", "--events", str(EVENTS), "--output", str(path))
    rows = (f"{key},value {key}\n" for key in range(SIDE_KEYS))
    (path.parent / "side.csv").write_text("key,value\n" + "".join(rows))
    return path


def results(path: Path) -> List[str]:
    """Returns the results in one order, with their fields in one order."""
    lines = path.read_text().splitlines()
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_results_of_rust(query: str, events: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.jsonl"
    side = ["--side", str(events.parent / "side.csv")] if query == "q13" else []
    ardea("run", "--query", query, "--input", str(events), "--output", str(expected), *side)
    p = a.Pipeline(query)
    QUERIES[query](p, str(events)).write(a.files.json(tmp_path / "out.jsonl"))
    p.run()
    assert results(tmp_path / "out.jsonl") == results(expected)
    assert results(expected)
