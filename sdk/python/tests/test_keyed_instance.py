"""The state and timers of a function with state in a process of its own."""

from typing import Any, Dict, List, Optional

import pytest
from ardea.keyed import Context, KeyedFunction
from ardea.keyed_instance import KeyedInstance

END = (1 << 63) - 1


class Counter:
    """Counts, and reports at the next multiple of ten."""

    def on_record(self, ctx: Context, record: Dict[str, Any]) -> None:
        ctx.state = (ctx.state or 0) + 1
        ctx.set_timer(record["timer"] / 1_000_000)

    def on_timer(self, ctx: Context) -> None:
        ctx.emit((ctx.key, ctx.state))
        ctx.clear_state()


def instance(function: Any = Counter, ttl_micros: Optional[int] = None) -> KeyedInstance:
    keyed = KeyedFunction(function, reads_objects=False, writes_objects=False, stops=True, keys=["key"])
    return KeyedInstance(keyed, ttl_micros)


def process(counted: KeyedInstance, *records: Any) -> None:
    """Handles records of a key, the time of a timer, and their own time."""
    rows = [{"key": key, "timer": timer} for key, timer, _ in records]
    counted.process(rows, [time for _, _, time in records], [len(key) for key, _, _ in records])


def test_timers_fire_in_the_order_of_their_times() -> None:
    counted = instance()
    process(counted, ("a", 30, 1), ("b", 10, 2), ("a", 30, 3))
    assert counted.fire(9) == ([], [], False)
    assert counted.fire(10) == ([("b", 1)], [10], False)
    assert counted.fire(END) == ([("a", 2)], [30], False)
    assert list(counted.saved()) == []


def test_a_timer_that_is_set_while_timers_fire_is_due_at_once() -> None:
    class Again:
        def on_record(self, ctx: Context, record: Any) -> None:
            ctx.set_timer(0.000_001)

        def on_timer(self, ctx: Context) -> None:
            ctx.state = (ctx.state or 0) + 1
            ctx.emit(ctx.state)
            if ctx.state < 3:
                ctx.set_timer(ctx.time.timestamp() + 0.000_001)

    again = instance(Again)
    process(again, ("a", 0, 0))
    assert again.fire(10) == ([1, 2, 3], [1, 2, 3], False)


def test_many_results_of_timers_come_in_parts() -> None:
    counted = instance()
    process(counted, *[(f"key-{n}", 5, 1) for n in range(10_000)])
    results: List[Any] = []
    has_more = True
    while has_more:
        values, _, has_more = counted.fire(5)
        assert len(values) < 10_000
        results += values
    assert len(results) == 10_000


def test_states_and_timers_are_restored_with_their_partitions() -> None:
    counted = instance()
    process(counted, ("a", 30, 1), ("bb", 40, 1))
    entries = list(counted.saved())
    assert [partition for partition, _, _ in entries] == [1, 2]
    restored = instance()
    for entry in entries:
        restored.restore(*entry)
    process(restored, ("a", 30, 2))
    assert restored.fire(END) == ([("a", 2), ("bb", 1)], [30, 40], False)


def test_an_unused_key_is_removed_after_its_time_to_live() -> None:
    counted = instance(ttl_micros=10)
    process(counted, ("a", 1000, 1), ("b", 1000, 1))
    counted.fire(5)
    process(counted, ("a", 1000, 6))
    counted.fire(12)
    assert len(list(counted.saved())) == 1
    restored = instance(ttl_micros=10)
    for entry in counted.saved():
        restored.restore(*entry)
    assert restored.fire(15) == ([], [], False)
    assert len(list(restored.saved())) == 1
    assert restored.fire(16) == ([], [], False)
    assert list(restored.saved()) == []


def test_no_key_expires_at_the_end_of_the_input() -> None:
    counted = instance(ttl_micros=10)
    process(counted, ("a", 1000, 1))
    assert counted.fire(END) == ([("a", 1)], [1000], False)


def test_a_failing_timer_raises_its_exception() -> None:
    def only_records(ctx: Context, record: Any) -> None:
        ctx.set_timer(0)

    failing = instance(only_records)
    process(failing, ("a", 0, 0))
    with pytest.raises(TypeError, match="has no on_timer"):
        failing.fire(END)
