"""Topologies that Python describes."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Dict, List

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


#: Components, and a topology of them. A process may be killed once.
COMPONENTS = """
    import json
    import os
    import sys
    from ardea.topology import DONE, Bolt, Spout, TopologyBuilder, wait

    FOLDER = os.path.dirname(os.path.abspath(sys.argv[0]))

    def die_once(name):
        marker = os.path.join(FOLDER, "dead-" + name)
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), 9)

    class Lines(Spout):
        outputs = ["line"]
        has_state = True

        def __init__(self, lines, kills=()):
            self.lines, self.kills, self.failed, self.pending = lines, kills, [], set()

        def next_tuple(self, out):
            if self.failed:
                return self.emit(self.failed.pop(), out)
            number = self.state.get("next", 0)
            if number == self.lines:
                return wait("1ms") if self.pending else DONE
            self.state["next"] = number + 1
            if number in self.kills:
                die_once(f"spout-{number}")
            self.emit(number, out)
            return wait("1ms") if number % 10 == 0 else None

        def emit(self, number, out):
            if self.acks:
                self.pending.add(number)
            out.emit(f"all word-{number % 7}", message=number)

        def open(self, context):
            self.acks = context.acks

        def ack(self, message):
            self.pending.discard(message)

        def fail(self, message):
            self.failed.append(message)

    class Split(Bolt):
        outputs = ["word"]
        has_state = True

        def __init__(self, kills=0):
            self.kills = kills

        def execute(self, tuple, out):
            self.state["seen"] = self.state.get("seen", 0) + 1
            if self.state["seen"] == 50 and self.kills:
                die_once("split")
            for word in tuple["line"].split():
                out.emit(word)

    class Count(Bolt):
        outputs = ["word", "count"]
        has_state = True

        def __init__(self, kills=0):
            self.kills = kills

        def execute(self, tuple, out):
            word = tuple["word"]
            self.state[word] = self.state.get(word, 0) + 1
            if self.state[word] == self.kills:
                die_once("count-" + word)

        def finish(self, out):
            for word, count in self.state.items():
                out.emit(word, count)

    class Write(Bolt):
        has_state = True

        def __init__(self, path):
            self.path = path

        def execute(self, tuple, out):
            self.state[tuple[0]] = tuple["count"]

        def finish(self, out):
            with open(self.path + ".new", "w") as file:
                json.dump(dict(self.state), file)
            os.rename(self.path + ".new", self.path)

    def word_count(split=Split, kills=0, spout_kills=(), **options):
        t = TopologyBuilder("word count")
        t.spout("lines", Lines, settings={"lines": 700, "kills": spout_kills})
        t.bolt("split", split, parallelism=2, settings={"kills": kills}, **options).shuffle("lines")
        t.bolt("count", Count, parallelism=2, settings={"kills": kills}).fields("split", ["word"])
        t.bolt("write", Write, settings={"path": os.path.join(FOLDER, "out.json")}).to_first("count")
        return t
"""

#: The counts of the topology.
COUNTS = {"all": 700, **{f"word-{n}": 100 for n in range(7)}}


def counts(folder: Path) -> Dict[str, int]:
    path = folder / "out.json"
    found: Dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    return found


def with_components(text: str) -> str:
    return textwrap.dedent(COMPONENTS) + textwrap.dedent(text)


def test_components_in_python_count_words(tmp_path: Path) -> None:
    done = run(tmp_path, with_components("word_count().run()"))
    assert done.returncode == 0, done.stderr
    assert counts(tmp_path) == COUNTS


def test_a_killed_bolt_loses_no_message_with_acks(tmp_path: Path) -> None:
    text = """
        t = TopologyBuilder("acks", reliability="at-least-once", max_spout_pending=200)
        t.spout("lines", Lines, settings={"lines": 700})
        t.bolt("split", Split, settings={"kills": 1}).shuffle("lines")
        t.bolt("count", Count).fields("split", ["word"])
        t.bolt("write", Write, settings={"path": os.path.join(FOLDER, "out.json")}).to_first("count")
        t.run()
    """
    done = run(tmp_path, with_components(text))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dead-split").exists()
    found = counts(tmp_path)
    assert set(found) == set(COUNTS)
    assert all(found[word] >= count for word, count in COUNTS.items())


def test_components_with_state_run_with_a_guarantee(tmp_path: Path) -> None:
    text = """
        word_count().run(
            guarantee="exactly-once",
            checkpoints=os.path.join(FOLDER, "checkpoints"),
            settings={"checkpoints.every": "20ms"},
        )
    """
    done = run(tmp_path, with_components(text))
    assert done.returncode == 0, done.stderr
    assert counts(tmp_path) == COUNTS


def test_words_count_once_while_spouts_and_bolts_with_state_are_killed(tmp_path: Path) -> None:
    text = """
        word_count(kills=60, spout_kills=[300]).run(
            guarantee="exactly-once",
            checkpoints=os.path.join(FOLDER, "checkpoints"),
            settings={"checkpoints.every": "20ms"},
        )
    """
    done = run(tmp_path, with_components(text))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dead-spout-300").exists() and (tmp_path / "dead-count-all").exists()
    assert counts(tmp_path) == COUNTS


@pytest.mark.parametrize("has_state", [True, False])
def test_a_bolt_that_ticks_passes_barriers(has_state: bool, tmp_path: Path) -> None:
    text = f"""
        class Ticking(Split):
            has_state = {has_state}

            def execute(self, tuple, out):
                for word in tuple["line"].split():
                    out.emit(word)

            def tick(self, out):
                pass

        word_count(Ticking, tick_every="1ms").run(
            guarantee="exactly-once",
            checkpoints=os.path.join(FOLDER, "checkpoints"),
            settings={{"checkpoints.every": "20ms"}},
        )
    """
    done = run(tmp_path, with_components(text))
    assert done.returncode == 0, done.stderr
    assert counts(tmp_path) == COUNTS


def test_a_failed_tuple_is_a_dead_letter_with_its_traceback(tmp_path: Path) -> None:
    text = """
        class Broken(Bolt):
            def execute(self, tuple, out):
                if tuple["line"] == "all word-0":
                    raise ValueError("no " + tuple["line"])

        t = TopologyBuilder("broken")
        t.spout("lines", Lines, settings={"lines": 7})
        t.bolt("broken", Broken).shuffle("lines")
        t.run(dead_letters="bad.jsonl")
    """
    done = run(tmp_path, with_components(text))
    assert done.returncode == 0, done.stderr
    (letter,) = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert "ValueError: no all word-0 (in execute, job.py:" in letter["reason"]
    assert "all word-0" in letter["raw"]


def test_an_exception_of_a_spout_fails_the_topology(tmp_path: Path) -> None:
    text = """
        import ardea

        class Broken(Spout):
            outputs = ["line"]

            def next_tuple(self, out):
                raise OSError("no connection")

        t = TopologyBuilder("broken")
        t.spout("lines", Broken)
        t.bolt("split", Split).shuffle("lines")
        try:
            t.run()
        except ardea.Error as error:
            assert "OSError: no connection" in str(error), error
            print("refused")
    """
    done = run(tmp_path, with_components(text))
    assert done.stdout == "refused\n", done.stderr


def test_classes_of_a_module_are_components_of_a_topology_file(tmp_path: Path) -> None:
    program = os.environ.get("TEST_ARDEA_PROGRAM") or shutil.which("ardea")
    if not program:
        pytest.skip("there is no program ardea (TEST_ARDEA_PROGRAM)")
    (tmp_path / "words.py").write_text(textwrap.dedent(COMPONENTS))
    settings = json.dumps({"path": str(tmp_path / "out.json")})
    (tmp_path / "words.yaml").write_text(textwrap.dedent(f"""
        name: words
        spouts:
          - name: lines
            component: python:words:Lines
            settings: {{ lines: 700 }}
        bolts:
          - name: split
            component: split
            inputs: [{{ from: lines, grouping: shuffle }}]
          - name: count
            component: python:words:Count
            parallelism: 2
            inputs: [{{ from: split, grouping: fields, fields: [word] }}]
          - name: write
            component: python:words:Write
            settings: {settings}
            inputs: [{{ from: count, grouping: global }}]
    """))
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    done = subprocess.run(
        [program, "run", "words.yaml"],
        cwd=tmp_path, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )
    assert done.returncode == 0, done.stderr
    # The built-in component splits words at the hyphen, too.
    assert counts(tmp_path) == {"all": 700, "word": 700, **{str(n): 100 for n in range(7)}}


def test_a_submitted_topology_runs_on_a_cluster(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARDEA_")}
    environment.update({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    text = with_components("""
        import ardea

        (FOLDER,) = ardea.arguments()
        word_count().run()
    """)
    (tmp_path / "job.py").write_text(text)
    words = ["submit", "--set", f"cluster.directory={tmp_path / 'cluster'}", "--set", "job.containers=2"]
    done = subprocess.run(
        [sys.executable, "job.py", *words, str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + TIMEOUT_S
    while counts(tmp_path) != COUNTS:
        assert time.monotonic() < deadline, logs(tmp_path / "cluster")
        time.sleep(0.05)


def logs(folder: Path) -> str:
    files: List[Path] = list(folder.rglob("*.log"))
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in files)


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
