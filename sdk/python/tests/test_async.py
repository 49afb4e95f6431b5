"""``async`` functions."""

import asyncio
from typing import Any, Dict, List

import pytest

import ardea as a

ROWS = [{"x": n} for n in range(20)]


def test_calls_run_at_the_same_time_up_to_a_limit_and_keep_their_order() -> None:
    running: List[int] = [0, 0]

    async def request(row: Dict[str, Any]) -> Dict[str, Any]:
        running[0] += 1
        running[1] = max(running)
        while running[1] < 5:
            await asyncio.sleep(0)
        running[0] -= 1
        return {"y": row["x"] * 2}

    p = a.Pipeline("requests")
    out = p.read(a.items(ROWS)).map_async(request, limit=5, schema={"y": int}).collect()
    p.run()
    assert [row["y"] for row in out] == [2 * n for n in range(20)]
    assert running[1] == 5


def test_a_failed_call_is_repeated() -> None:
    attempts: Dict[int, int] = {}

    async def flaky(row: Dict[str, Any]) -> int:
        attempts[row["x"]] = attempts.get(row["x"], 0) + 1
        if attempts[row["x"]] < 3:
            raise ConnectionError("refused")
        return int(row["x"])

    p = a.Pipeline("flaky")
    out = p.read(a.items(ROWS)).map_async(flaky, retries=2).collect()
    p.run()
    assert out.rows() == list(range(20))


def test_a_call_that_takes_too_long_fails_its_record() -> None:
    async def hang(row: Dict[str, Any]) -> int:
        if row["x"] == 3:
            await asyncio.Event().wait()
        return int(row["x"])

    p = a.Pipeline("slow")
    out = p.read(a.items(ROWS)).map_async(hang, timeout="50ms", on_error="drop").collect()
    p.run()
    assert out.rows() == [n for n in range(20) if n != 3]


def test_an_exception_is_the_cause() -> None:
    async def failing(row: Dict[str, Any]) -> int:
        raise ValueError(row["x"])

    p = a.Pipeline("failing")
    p.read(a.items(ROWS)).map_async(failing).collect()
    with pytest.raises(a.FunctionError) as raised:
        p.run()
    assert raised.value.record == 0
    assert isinstance(raised.value.__cause__, ValueError)
