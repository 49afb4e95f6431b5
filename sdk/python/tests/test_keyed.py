"""Functions with state and timers."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List

import pytest

import ardea as a


def total(ctx: a.Context, record: Dict[str, Any]) -> None:
    ctx.state = (ctx.state or 0) + record["v"]
    ctx.emit({"k": ctx.key, "total": ctx.state})


TOTAL = {"k": str, "total": int}


class Silence:
    """Reports users that have been silent for ten seconds."""

    def on_record(self, ctx: a.Context, record: Dict[str, Any]) -> None:
        if ctx.state is not None:
            ctx.clear_timer(ctx.state)
        ctx.state = ctx.time + timedelta(seconds=10)
        ctx.set_timer(ctx.state)

    def on_timer(self, ctx: a.Context) -> None:
        ctx.emit((ctx.key, ctx.time.second))
        ctx.clear_state()


def test_a_function_has_a_state_for_each_key() -> None:
    p = a.Pipeline("totals")
    rows = [{"k": "a", "v": 1}, {"k": "b", "v": 10}, {"k": "a", "v": 2}]
    out = p.read(a.items(rows)).key_by("k").process(total, schema=TOTAL).collect()
    p.run()
    assert sorted((row["k"], row["total"]) for row in out) == [("a", 1), ("a", 3), ("b", 10)]


def test_timers_fire_in_event_time() -> None:
    p = a.Pipeline("silence")
    rows = [("ann", 0), ("bob", 5), ("ann", 8), ("bob", 30)]
    out = (
        p.read(a.items(rows))
        .with_timestamps(lambda row: row[1])
        .key_by(user=lambda row: row[0], type=str)
        .process(Silence)
        .collect()
    )
    p.run()
    # All records are in one batch, so that the second record of bob comes before his timer.
    assert sorted(out.rows()) == [("ann", 18), ("bob", 40)]


def test_a_key_may_have_several_columns() -> None:
    keys: List[Any] = []

    def remember(ctx: a.Context, record: Dict[str, Any]) -> None:
        keys.append(ctx.key)

    p = a.Pipeline("keys")
    p.read(a.items([{"x": 1, "y": "a"}])).key_by("x", "y").process(remember).collect()
    p.run()
    assert keys == [(1, "a")]


def test_a_failed_record_names_step_and_record() -> None:
    def failing(ctx: a.Context, record: Dict[str, Any]) -> None:
        raise ValueError(record["v"])

    p = a.Pipeline("failing")
    p.read(a.items([{"k": "a", "v": 7}])).key_by("k").process(failing, name="check").collect()
    with pytest.raises(a.FunctionError, match="ValueError: 7") as raised:
        p.run()
    assert raised.value.step == "check"
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_failed_record_may_be_dropped() -> None:
    def positive(ctx: a.Context, record: Dict[str, Any]) -> None:
        if record["v"] < 0:
            raise ValueError("negative")
        ctx.emit(record["v"])

    p = a.Pipeline("dropped")
    rows = [{"k": 1, "v": 1}, {"k": 1, "v": -1}, {"k": 1, "v": 2}]
    out = p.read(a.items(rows)).key_by("k").process(positive, on_error="drop").collect()
    p.run()
    assert out.rows() == [1, 2]


def test_the_state_survives_a_failure(tmp_path: Path) -> None:
    rows = [{"k": n % 3, "v": n} for n in range(6000)]
    marker = tmp_path / "failed"

    def running(ctx: a.Context, record: Dict[str, Any]) -> None:
        if record["v"] == 4000 and not marker.exists():
            marker.touch()
            raise RuntimeError("once")
        ctx.state = (ctx.state or 0) + record["v"]
        if record["v"] >= 5997:
            ctx.emit({"k": ctx.key, "total": ctx.state})

    p = a.Pipeline("survives")
    schema = {"k": int, "total": int}
    keyed = p.read(a.items(rows)).key_by("k").process(running, name="totals", schema=schema)
    keyed.write(a.files.json(tmp_path / "out.jsonl"))
    p.run(
        guarantee="exactly-once",
        checkpoints=str(tmp_path / "checkpoints"),
        settings={"checkpoints.every": "10ms", "checkpoints.pause": "0ms"},
    )
    assert marker.exists()
    lines = sorted((tmp_path / "out.jsonl").read_text().splitlines())
    sums = [sum(n for n in range(6000) if n % 3 == k) for k in range(3)]
    assert lines == [f'{{"k":{k},"total":{sums[k]}}}' for k in range(3)]


def test_a_state_that_cannot_be_pickled_fails_the_job(tmp_path: Path) -> None:
    def lock(ctx: a.Context, record: Dict[str, Any]) -> None:
        import threading

        ctx.state = threading.Lock()

    p = a.Pipeline("unpicklable")
    numbers = p.read(a.items([{"k": 1}])).key_by("k").process(lock)
    numbers.for_each(print)
    with pytest.raises(a.Error, match="cannot be pickled"):
        p.run(guarantee="exactly-once", checkpoints=str(tmp_path))
