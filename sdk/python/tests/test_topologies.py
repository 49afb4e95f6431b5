"""Topologies that Python describes."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import ardea as a
import pytest
from ardea.topology import Bolt, Collector, Spout, TopologyBuilder, Tuple

#: A limit that is long enough for any machine.
TIMEOUT_S = 240.0

BUILT_IN = """
    from ardea.topology import TopologyBuilder

    t = TopologyBuilder("word count", reliability="at-least-once", message_timeout="1m")
    t.spout("lines", "lines", settings={"file": "lines.txt"})
    t.bolt("split", "split", parallelism=2).shuffle("lines")
    t.bolt("count", "count", parallelism=2, settings={"every": "1h"}).fields("split", ["word"])
    t.bolt("print", "print").to_first("count")
    outcome = t.run()
    assert outcome.state == "completed"
"""


def run(folder: Path, text: str, *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "lines.txt").write_text("to be or not\nto be\n")
    (folder / "job.py").write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "job.py", *words],
        cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )


def test_a_topology_of_built_in_components_runs_in_this_process(tmp_path: Path) -> None:
    done = run(tmp_path, BUILT_IN)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ['"be"\t2', '"not"\t1', '"or"\t1', '"to"\t2']


def test_a_script_with_a_topology_has_commands(tmp_path: Path) -> None:
    done = run(tmp_path, BUILT_IN, "plan")
    assert done.returncode == 0, done.stderr
    assert "split" in done.stdout and '"be"' not in done.stdout


class Nothing(Bolt):
    def execute(self, tuple: Tuple, out: Collector) -> None:
        pass


@pytest.mark.parametrize(
    ("component", "kind", "reason"),
    [
        (Nothing, "spout", "Nothing is no spout"),
        (Spout, "bolt", "Spout is no bolt"),
        (int, "bolt", "is no spout and no bolt"),
    ],
)
def test_a_component_of_another_kind_is_refused(component: Any, kind: str, reason: str) -> None:
    t = TopologyBuilder("refused")
    with pytest.raises(a.Error, match=reason):
        getattr(t, kind)("x", component)


def test_an_unknown_component_is_an_error() -> None:
    t = TopologyBuilder("refused")
    t.spout("lines", "lin")
    with pytest.raises(a.Error, match="there is no spout"):
        t.run()


def test_a_component_in_python_needs_a_script() -> None:
    t = TopologyBuilder("refused")
    t.spout("words", "words")
    t.bolt("nothing", Nothing).shuffle("words")
    with pytest.raises(a.Error, match="need the script of the job"):
        t.run()
