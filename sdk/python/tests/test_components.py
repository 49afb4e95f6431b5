"""Spouts and bolts as instances of the instance protocol."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from ardea import metrics
from ardea.instances import END_OF_TIME, MORE, FrameType, first_partition
from ardea.topology import (
    DONE,
    Bolt,
    Collector,
    ComponentContext,
    Direct,
    HeldTuple,
    JobFailure,
    Next,
    Spout,
    SpoutCollector,
    Tuple,
    wait,
)
from ardea.topology.components import description_of
from ardea.topology.values import decoded, encoded, plain
from instance_host import Emitted, Host

INPUTS = [{"component": "lines", "stream": "default", "fields": ["line"]}]
WORDS = [{"component": "split", "stream": "default", "fields": ["word"]}]


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tuple: Tuple, out: Collector) -> None:
        for word in tuple["line"].split():
            out.emit(word)


class Count(Bolt):
    outputs = ["word", "count"]
    has_state = True

    def execute(self, tuple: Tuple, out: Collector) -> None:
        word = tuple["word"]
        self.state[word] = self.state.get(word, 0) + 1

    def finish(self, out: Collector) -> None:
        for word, count in self.state.items():
            out.emit(word, count)


def test_a_bolt_emits_tuples_for_the_rows_of_a_batch() -> None:
    host = Host(Split, inputs=INPUTS).ready()
    assert host.hello["roles"] == ["bolt"] and host.hello["formats"] == ["json"]
    result = host.execute(1, [[0, "to be"], [0, ""], [0, "or"]])
    assert result.outputs == [(0, [0, "to"]), (0, [0, "be"]), (2, [0, "or"])]
    assert (result.failures, result.held) == ({}, [])
    host.stop()


def test_an_exception_fails_its_tuple_with_a_traceback() -> None:
    host = Host(Split, inputs=INPUTS).ready()
    result = host.execute(1, [[0, 7], [0, "be"]])
    assert list(result.failures) == [0]
    reason = result.failures[0]
    assert reason.startswith("AttributeError: ") and "test_components.py" in reason
    assert "in execute" in reason
    assert result.outputs == [(1, [0, "be"])]
    host.stop()


def test_a_large_answer_is_sent_in_parts() -> None:
    host = Host(Split, inputs=INPUTS).ready()
    words = ["x" * 1000] * 3000
    result = host.execute(1, [[0, " ".join(words)]])
    assert result.outputs == [(0, [0, word]) for word in words]
    host.stop()


class Pairs(Bolt):
    """Holds a tuple until the next one."""

    outputs = {"pairs": ["first", "second"]}

    def prepare(self, context: ComponentContext) -> None:
        self.held: List[Any] = []

    def execute(self, tuple: Tuple, out: Collector) -> None:
        self.held.append((out.hold(tuple), tuple[0]))
        if tuple[0] == "bad":
            raise ValueError("bad")
        if len(self.held) == 2:
            self.flush(out)

    def flush(self, out: Collector) -> None:
        tuples = [held for held, _ in self.held]
        with out.tied_to(tuples):
            out.emit(*[value for _, value in self.held])
        for held in tuples:
            out.ack(held)
        self.held = []

    def tick(self, out: Collector) -> None:
        for held, _ in self.held:
            out.fail(held, "alone")
        self.held = []


def test_held_tuples_are_acked_after_the_result_that_holds_them() -> None:
    host = Host(Pairs, inputs=INPUTS).ready()
    assert host.execute(1, [[0, "a"]]).held == [0]
    result = host.execute(2, [[0, "b"], [0, "c"]])
    assert (result.outputs, result.held) == ([], [0, 1])
    assert host.emitted(0) == ([Emitted([(1, 0), (2, 0)], [0, "a", "b"])], 0)
    assert host.outcomes() == [(1, 0, True, ""), (2, 0, True, "")]
    host.send(FrameType.TICK, sequence=9)
    assert host.emitted(9) == ([], 0)
    assert host.outcomes() == [(2, 1, False, "alone")]
    host.stop()


def test_a_failed_tuple_is_not_held() -> None:
    host = Host(Pairs, inputs=INPUTS).ready()
    result = host.execute(1, [[0, "bad"]])
    assert (list(result.failures), result.held) == ([0], [])
    host.stop()


class SettlesAndFails(Bolt):
    outputs = ["word"]

    def execute(self, tuple: Tuple, out: Collector) -> None:
        held = out.hold(tuple)
        if tuple[0] == "anchor":
            with out.tied_to(held):
                out.emit("x")
        out.ack(held)
        raise ValueError("late")


def test_an_exception_after_an_ack_fails_its_tuple_only() -> None:
    host = Host(SettlesAndFails, inputs=INPUTS).ready()
    result = host.execute(1, [[0, "ack"], [0, "anchor"]])
    assert (list(result.failures), result.held) == ([0], [1])
    assert host.emitted(0) == ([Emitted([(1, 1)], [0, "x"])], 0)
    ((batch, row, is_acked, reason),) = host.outcomes()
    assert (batch, row, is_acked) == (1, 1, False) and "ValueError: late" in reason
    host.stop()


class LongReasons(Bolt):
    def prepare(self, context: ComponentContext) -> None:
        self.held: List[HeldTuple] = []

    def execute(self, tuple: Tuple, out: Collector) -> None:
        if tuple[0] == "hold":
            self.held.append(out.hold(tuple))
        else:
            raise ValueError("é" * 100_000)

    def tick(self, out: Collector) -> None:
        for held in self.held:
            out.fail(held, "é" * 100_000)


def test_many_long_reasons_are_sent_in_parts() -> None:
    host = Host(LongReasons, inputs=INPUTS).ready()
    result = host.execute(1, [[0, "fail"]] * 600)
    assert len(result.failures) == 600
    assert all(len(reason.encode()) <= 64 << 10 for reason in result.failures.values())
    assert len(host.execute(2, [[0, "hold"]] * 600).held) == 600
    host.send(FrameType.TICK, sequence=3)
    assert host.emitted(3) == ([], 0)
    outcomes: List[Any] = []
    while len(outcomes) < 600:
        part = host.outcomes()
        assert len(part) < 100
        outcomes.extend(part)
    host.stop()


class Misuse(Bolt):
    outputs = {"named": ["a", "b"], "direct": Direct(["a"])}

    def prepare(self, context: ComponentContext) -> None:
        self.last: Optional[HeldTuple] = None

    def execute(self, tuple: Tuple, out: Collector) -> None:
        calls: Dict[str, Callable[[], Any]] = {
            "values": lambda: out.emit(1),
            "stream": lambda: out.emit_to("missing", 1),
            "direct": lambda: out.emit_to("direct", 1),
            "instance": lambda: out.emit_direct(1, "named", 1, 2),
            "type": lambda: out.emit(1, {}),
            "large": lambda: out.emit(1, 1 << 63),
            "field": lambda: tuple["missing"],
            "good": lambda: out.emit_direct(3, "direct", math.nan),
        }
        calls[tuple["line"]]()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("values", "has the fields a, b, and 1 values were emitted"),
        ("stream", "has no stream 'missing': its outputs are named, direct"),
        ("direct", "are emitted with emit_direct"),
        ("instance", "are emitted with emit or emit_to"),
        ("type", "a tuple has no values of the type dict"),
        ("large", "has more than 64 bits"),
        ("field", "has no field 'missing': its fields are line"),
    ],
)
def test_a_wrong_tuple_fails_its_input(line: str, reason: str) -> None:
    host = Host(Misuse, inputs=INPUTS).ready()
    result = host.execute(1, [[0, line], [0, "good"]])
    assert reason in result.failures[0]
    assert result.outputs == [(1, {"stream": 1, "instance": 3, "values": [{"float": "NaN"}]})]
    host.stop()


def test_all_values_of_tuples_are_documents() -> None:
    values = [None, True, -1, 1.5, "ä\n", b"\x00\xff", [1, [b"", "x"]], math.inf, -math.inf]
    assert decoded(encoded(plain(values))) == values
    assert json.loads(encoded(plain([b"\x00"]))) == [{"base64": "AA=="}]
    for document in (b'[{"a":1}]', b"{}", b'[{"float":"1"}]', b"["):
        with pytest.raises(ValueError):
            decoded(document)


def test_the_state_of_a_bolt_is_saved_and_restored_by_its_partitions() -> None:
    host = Host(Count, inputs=WORDS).ready()
    assert host.hello["state"] is True
    host.execute(1, [[0, "to"], [0, "be"], [0, "to"]], [7, 1023, 7])
    entries = host.state(4)
    assert sorted(partition for partition, _, _ in entries) == [7, 1023]
    host.send(FrameType.COMMIT, sequence=4)
    host.stop()
    restored = Host(Count, inputs=WORDS, restore=True).ready()
    restored.restore(entries)
    restored.execute(1, [[0, "to"]], [7])
    assert len(restored.state(5)) == 2
    restored.send(FrameType.WATERMARK, sequence=END_OF_TIME)
    emitted, _ = restored.emitted(END_OF_TIME, MORE)
    assert sorted(it.document for it in emitted) == [[0, "be", 1], [0, "to", 3]]
    assert restored.receive(FrameType.WATERMARK).sequence == END_OF_TIME
    restored.stop()


class Total(Bolt):
    has_state = True

    def execute(self, tuple: Tuple, out: Collector) -> None:
        self.state["total"] = self.state.get("total", 0) + 1


def test_an_entry_of_another_key_fails_the_job() -> None:
    host = Host(Total, inputs=WORDS).ready()
    host.batch(1, [[0, "to"], [0, "be"]], [7, 8])
    assert "belongs to the values of the grouping's fields" in host.failure()["message"]


def test_an_entry_without_a_key_belongs_to_the_instance() -> None:
    host = Host(Total, inputs=WORDS, instance=2, instances=3).ready()
    host.execute(1, [[0, "to"], [0, "be"]])
    ((partition, _, _),) = host.state(1)
    assert partition == first_partition(2, 3) == 683
    host.stop()


def test_the_first_partition_of_an_instance_is_its_own() -> None:
    for instances in (1, 2, 3, 7, 1000, 1024):
        for instance in range(instances):
            assert first_partition(instance, instances) * instances // 1024 == instance


class Numbers(Spout):
    outputs = ["number"]
    has_state = True

    def __init__(self, end: int = 3) -> None:
        self.end = end

    def open(self, context: ComponentContext) -> None:
        self.state.setdefault("next", 0)
        self.events: List[int] = []

    def next_tuple(self, out: SpoutCollector) -> Optional[Next]:
        if self.events:
            out.emit(self.events.pop(0))
            return None
        number = self.state["next"]
        if number >= self.end:
            return DONE if number > self.end else self.last()
        self.state["next"] += 1
        out.emit(number, message=number)
        return None

    def last(self) -> Next:
        self.state["next"] += 1
        return wait("1500us")

    def ack(self, message: int) -> None:
        self.events.append(100 + message)

    def fail(self, message: int) -> None:
        self.events.append(200 + message)


def test_a_spout_emits_up_to_the_limit_and_hears_of_its_messages() -> None:
    host = Host(Numbers, parameters={"end": 3}).ready()
    assert host.hello["roles"] == ["spout"]
    assert host.next(1, 2) == ([Emitted([(0, 0)], [0, 0]), Emitted([(1, 0)], [0, 1])], 0)
    assert host.next(2) == ([Emitted([(2, 0)], [0, 2])], 2)
    host.acks((0, True), (2, False))
    assert host.next(3) == ([Emitted([], [0, 100]), Emitted([], [0, 202])], -1)
    host.stop()


def test_the_state_of_a_spout_is_restored_before_it_is_opened() -> None:
    host = Host(Numbers, parameters={"end": 9}).ready()
    host.next(1, 5)
    entries = host.state(1)
    assert [partition for partition, _, _ in entries] == [0]
    host.leave()
    restored = Host(Numbers, parameters={"end": 9}, restore=True).ready()
    restored.restore(entries)
    assert restored.next(1, 1) == ([Emitted([(5, 0)], [0, 5])], 0)
    restored.stop()


class Broken(Spout):
    outputs = ["x"]

    def next_tuple(self, out: SpoutCollector) -> Optional[Next]:
        raise OSError("no connection")


class Silent(Spout):
    outputs = ["x"]

    def next_tuple(self, out: SpoutCollector) -> Optional[Next]:
        return None


def test_a_spout_that_emits_nothing_is_called_later() -> None:
    host = Host(Silent).ready()
    assert host.next(1) == ([], 1)
    host.stop()


def test_an_exception_of_a_spout_fails_the_job() -> None:
    host = Host(Broken).ready()
    host.send(FrameType.NEXT, b"\x01\x00\x00\x00", 1)
    failure = host.failure()
    assert failure["message"].startswith("OSError: no connection (in next_tuple")
    assert "Traceback" in failure["traceback"]


class BrokenPipe(Bolt):
    def execute(self, tuple: Tuple, out: Collector) -> None:
        raise BrokenPipeError("of the bolt's own connection")

    def tick(self, out: Collector) -> None:
        raise ConnectionResetError("of the bolt's own connection")


def test_a_broken_connection_of_user_code_is_no_end_of_the_host() -> None:
    host = Host(BrokenPipe, inputs=INPUTS).ready()
    assert "BrokenPipeError" in host.execute(1, [[0, "x"]]).failures[0]
    host.send(FrameType.TICK, sequence=2)
    assert host.failure()["message"].startswith("ConnectionResetError")


def test_a_lost_host_ends_a_bolt_that_sends() -> None:
    host = Host(Split, inputs=INPUTS).ready()
    host.batch(1, [[0, "x " * 1_000_000]] * 3)
    host.leave()


class Fatal(Bolt):
    def execute(self, tuple: Tuple, out: Collector) -> None:
        raise JobFailure("enough")


def test_a_bolt_may_fail_the_job() -> None:
    host = Host(Fatal, inputs=INPUTS).ready()
    host.batch(1, [[0, "x"]])
    assert "enough" in host.failure()["message"]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FrameType.BATCH, b"\x01\x00\x00\x00"),
        (FrameType.BATCH, b""),
        (FrameType.RING, b""),
        (FrameType.NEXT, b"\x01\x00\x00\x00"),
    ],
)
def test_a_frame_that_breaks_the_protocol_ends_the_instance(kind: FrameType, payload: bytes) -> None:
    host = Host(Split, inputs=INPUTS).ready()
    host.send(kind, payload, 1)
    assert "ProtocolError" in host.failure()["message"]


def test_a_wrong_role_ends_the_instance() -> None:
    assert "Split is a bolt" in Host(Split, role="spout").failure()["message"]


def test_a_setting_that_the_class_lacks_ends_the_instance() -> None:
    assert "limit" in Host(Split, parameters={"limit": 1}).failure()["message"]


class Counting(Bolt):
    def execute(self, tuple: Tuple, out: Collector) -> None:
        metrics.counter("test_tuples").add(2)
        metrics.gauge("test_length").set(len(tuple["line"]))


def test_metrics_are_sent_with_their_increase() -> None:
    host = Host(Counting, inputs=INPUTS).ready()
    host.execute(1, [[0, "abc"], [0, "ab"]])
    host.send(FrameType.STOP)
    sent = [host.receive(FrameType.METRIC).json() for _ in range(2)]
    assert {"name": "test_tuples", "kind": "counter", "value": 4} in sent
    assert {"name": "test_length", "kind": "gauge", "value": 2.0} in sent
    assert metrics.take_changes() == []


def test_changes_during_a_call_belong_to_its_instance() -> None:
    lines, fill = metrics.counter("test_lines"), metrics.gauge("test_fill")
    instance = metrics.InstanceMetrics()
    instance.enter()
    lines.add(2)
    lines.add(3)
    fill.set(7)
    assert sorted(instance.leave()) == [("test_fill", "gauge", 7.0), ("test_lines", "counter", 5)]
    assert instance.leave() == [] and metrics.take_changes() == []
    lines.add(1)
    assert metrics.take_changes() == [("test_lines", "counter", 1)]


def test_a_coroutine_changes_the_metrics_of_its_call() -> None:
    from ardea.asynchronous import AsyncFunction

    async def counted(record: Any) -> Any:
        metrics.counter("test_coroutines").add(record)
        return record

    function = AsyncFunction(
        counted, limit=2, timeout_micros=None, retries=0,
        reads_objects=False, writes_objects=False, stops=True,
    )
    instance = metrics.InstanceMetrics()
    instance.enter()
    function([1, 2, 3])
    assert instance.leave() == [("test_coroutines", "counter", 6)]


def test_a_metric_has_one_kind_and_a_plain_name() -> None:
    metrics.counter("test_kind")
    for name in ("test_kind", "Upper", "1a", "a-b"):
        with pytest.raises(Exception, match="ARD-101"):
            metrics.gauge(name)


COMPONENT = """
from ardea.topology import Bolt, Direct

print("imported")

class Split(Bolt):
    outputs = {"words": ["word"], "others": Direct(["line"])}

class Other:
    pass
"""


def component(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "parts.py").write_text(COMPONENT)
    return subprocess.run(
        [sys.executable, "-m", "ardea", "component", *words],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )


def test_a_class_is_described_for_topology_files(tmp_path: Path) -> None:
    for name in ("parts:Split", "parts.py:Split"):
        done = component(tmp_path, "--describe", name)
        assert json.loads(done.stdout) == {
            "kind": "bolt",
            "outputs": [
                {"stream": "words", "fields": ["word"], "direct": False},
                {"stream": "others", "fields": ["line"], "direct": True},
            ],
        }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("parts:Missing", "has no class 'Missing'"),
        ("missing:Split", "there is no module 'missing'"),
        ("missing.py:Split", "there is no file missing.py"),
        ("parts:Other", "is no spout and no bolt"),
        ("parts", "write MODULE:CLASS"),
    ],
)
def test_a_wrong_name_of_a_class_is_an_error(name: str, reason: str, tmp_path: Path) -> None:
    done = component(tmp_path, "--describe", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ARD-101" in done.stderr and reason in done.stderr


def test_wrong_outputs_are_an_error() -> None:
    with pytest.raises(Exception, match=r'outputs = \["word"\]'):
        description_of(type("Wrong", (Bolt,), {"outputs": "word"}))
