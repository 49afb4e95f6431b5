"""The tools for tests of jobs."""

from datetime import timedelta
from typing import Any, Dict

import pytest

import ardea as a
from ardea.testing import KeyedTest, run_steps


class Silence:
    """Reports users that have been silent for ten seconds."""

    def on_record(self, ctx: a.Context, record: Dict[str, Any]) -> None:
        if ctx.state is not None:
            ctx.clear_timer(ctx.state)
        ctx.state = ctx.time + timedelta(seconds=10)
        ctx.set_timer(ctx.state)

    def on_timer(self, ctx: a.Context) -> None:
        ctx.emit(ctx.key)
        ctx.clear_state()


def test_timers_fire_as_the_watermark_advances() -> None:
    test = KeyedTest(Silence, key="user")
    test.record({"user": "ann"}, time=0)
    test.record({"user": "bob"}, time=1)
    test.record({"user": "ann"}, time=5)
    test.watermark(12)
    assert test.take() == ["bob"]
    test.restore()
    test.watermark(15)
    ((user, time),) = test.take_timed()
    assert (user, time.second) == ("ann", 15)
    assert test.state("ann") is None


def test_processing_timers_fire_as_the_clock_advances() -> None:
    class Ticking:
        """Emits a tick a second after each record."""

        def on_record(self, ctx: a.Context, record: Any) -> None:
            ctx.set_processing_timer("1s")

        def on_timer(self, ctx: a.Context) -> None:
            ctx.emit(ctx.is_processing_timer)

    test = KeyedTest(Ticking, key=lambda record: record)
    test.record("x")
    test.advance(timedelta(milliseconds=999))
    assert test.take() == []
    test.advance(timedelta(milliseconds=1))
    assert test.take() == [True]


def test_an_exception_is_that_of_the_function() -> None:
    def failing(ctx: a.Context, record: Any) -> None:
        raise KeyError(record)

    with pytest.raises(KeyError):
        KeyedTest(failing, key=lambda record: record).record(1)


def test_the_watermark_follows_each_record() -> None:
    def per_window(stream: a.Stream) -> a.Stream:
        windows = stream.key_by(lambda pair: pair[0], type=str).window(a.tumbling("10s"))
        return windows.aggregate(n=a.count()).select("key", "n")

    records = [("a", 1), ("a", 2), ("b", 30), ("a", 3)]
    results = run_steps(per_window, records, time=lambda pair: float(pair[1]))
    assert sorted(results, key=str) == [{"key": "a", "n": 2}, {"key": "b", "n": 1}]
