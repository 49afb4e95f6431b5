"""Functions on records."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Dict, Iterator, List, TypedDict

import pytest

import ardea as a

NUMBERS = [{"x": n} for n in range(5)]


class Doubled(TypedDict):
    """A record of the tests."""

    x: int
    twice: int


@dataclass
class Word:
    """A record of the tests."""

    text: str
    length: int


def doubled(record: Dict[str, Any]) -> Doubled:
    return {"x": record["x"], "twice": 2 * record["x"]}


def test_a_filter_by_a_function_keeps_the_columns() -> None:
    p = a.Pipeline("filter")
    out = p.read(a.items(NUMBERS)).filter(lambda r: r["x"] % 2 == 0).filter(a.col("x") > 0).collect()
    p.run()
    assert out.rows() == [{"x": 2}, {"x": 4}]


def test_an_annotated_function_makes_columns() -> None:
    p = a.Pipeline("map")
    out = p.read(a.items(NUMBERS)).map(doubled).filter(a.col("twice") > 5).collect()
    p.run()
    assert out.rows() == [{"x": 3, "twice": 6}, {"x": 4, "twice": 8}]


def test_a_function_without_a_schema_makes_objects() -> None:
    p = a.Pipeline("objects")
    out = (
        p.read(a.items(NUMBERS))
        .map(lambda r: ("n", r["x"]))
        .filter(lambda pair: pair[1] > 2)
        .map(lambda pair: {pair[0]: [pair[1]]})
        .collect()
    )
    p.run()
    assert out.rows() == [{"n": [3]}, {"n": [4]}]


def test_a_flat_map_emits_all_items() -> None:
    def words(line: str) -> Iterator[Word]:
        for word in line.split():
            yield Word(word, len(word))

    p = a.Pipeline("words")
    lines = p.read(a.items(["to be or", "not"]))
    out = lines.flat_map(words).columns(Word).filter(a.col("length") > 2).collect()
    p.run()
    assert out.rows() == [{"text": "not", "length": 3}]


def test_values_keep_their_types() -> None:
    record = {
        "b": True,
        "i": -(2**63),
        "f": 0.5,
        "s": "grüß",
        "y": b"\x00",
        "t": datetime(2020, 1, 2, 3, 4, 5, 6),
        "d": date(1960, 2, 29),
        "n": None,
    }
    schema = {"b": bool, "i": int, "f": float, "s": str, "y": bytes}
    schema.update({"t": datetime, "d": date, "n": int})
    p = a.Pipeline("types")
    out = p.read(a.items([record], schema=schema)).map(lambda r: r, schema=schema).collect()
    p.run()
    assert out.rows() == [record]


def test_a_column_is_added_by_a_function() -> None:
    p = a.Pipeline("column")
    numbers = p.read(a.items(NUMBERS)).filter(lambda r: r["x"] > 2)
    out = numbers.with_column("name", lambda r: f"n{r['x']}", type=str).collect()
    p.run()
    assert out.rows() == [{"x": 3, "name": "n3"}, {"x": 4, "name": "n4"}]


def test_times_and_keys_may_be_functions() -> None:
    p = a.Pipeline("windows")
    out = (
        p.read(a.items([{"t": second, "v": 1} for second in (1, 2, 11)]))
        .with_timestamps(lambda r: r["t"])
        .key_by(lambda r: r["v"] % 2 == 1, type=bool)
        .window(a.tumbling("10s"))
        .aggregate(n=a.count())
        .collect()
    )
    p.run()
    start = datetime(1970, 1, 1)
    rows = [(row["window_start"], row["key"], row["n"]) for row in out]
    assert sorted(rows) == [(start, True, 2), (start.replace(second=10), True, 1)]


def test_objects_may_have_event_times_and_keys() -> None:
    p = a.Pipeline("words")
    out = (
        p.read(a.items([("a", 1), ("b", 2), ("a", 3)]))
        .with_timestamps(lambda pair: pair[1])
        .key_by(word=lambda pair: pair[0], type=str)
        .window(a.tumbling("10s"))
        .aggregate(n=a.count())
        .select("word", "n")
        .collect()
    )
    p.run()
    assert sorted(out.rows(), key=str) == [{"word": "a", "n": 2}, {"word": "b", "n": 1}]


def test_an_exception_comes_back_with_its_traceback_record_and_step() -> None:
    def inverse(record: Dict[str, Any]) -> float:
        return float(1 / record["x"])

    p = a.Pipeline("failing")
    p.read(a.items([{"x": 2}, {"x": 0}])).map(inverse).collect()
    with pytest.raises(a.FunctionError) as raised:
        p.run()
    error = raised.value
    assert error.code == "ARD-202"
    assert (error.step, error.record) == ("inverse", 1)
    assert "ZeroDivisionError: division by zero (in inverse, test_functions.py:" in str(error)
    assert "{'x': 0}" in str(error.hint)
    cause = error.__cause__
    assert isinstance(cause, ZeroDivisionError)
    frames = []
    traceback = cause.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames[-1] == "inverse"


@pytest.mark.parametrize("kind", ["filter", "map", "flat_map", "for_each"])
def test_the_record_of_an_exception_is_named_for_each_kind_of_step(kind: str) -> None:
    def fail_at_three(record: Dict[str, Any]) -> List[int]:
        assert record["x"] != 3
        return [1]

    p = a.Pipeline("failing")
    step = getattr(p.read(a.items(NUMBERS)), kind)(fail_at_three)
    if step is not None:
        step.collect()
    with pytest.raises(a.FunctionError) as raised:
        p.run()
    assert raised.value.record == 3
    assert isinstance(raised.value.__cause__, AssertionError)


def test_failed_records_become_dead_letters(tmp_path: Path) -> None:
    p = a.Pipeline("letters", on_error="dead_letter")
    numbers = p.read(a.items(NUMBERS))
    out = numbers.map(lambda r: {"y": 12 // r["x"]}, schema={"y": int}).collect()
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    assert [row["y"] for row in out] == [12, 6, 4, 3]
    (letter,) = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert "ZeroDivisionError" in letter["reason"]
    assert "test_functions.py" in letter["reason"]
    assert letter["raw"] == "x: 0"


def test_failed_records_may_be_dropped() -> None:
    p = a.Pipeline("dropped")
    numbers = p.read(a.items(NUMBERS))
    out = numbers.filter(lambda r: 1 / r["x"] > 0.3, on_error="drop").collect()
    p.run()
    assert [row["x"] for row in out] == [1, 2, 3]


def test_a_result_that_does_not_fit_the_schema_is_an_error_of_its_record() -> None:
    p = a.Pipeline("schema", on_error="drop")
    results: List[Any] = [{"y": 1}, {"y": "one"}, {"z": 1}, {"y": 1, "z": 2}, None, 5]
    out = (
        p.read(a.items([{"x": n} for n in range(6)]))
        .map(lambda r: results[r["x"]], schema={"y": int})
        .collect()
    )
    p.run()
    assert out.rows() == [{"y": 1}]


def test_a_wrong_type_names_the_column_and_the_value() -> None:
    p = a.Pipeline("schema")
    p.read(a.items(NUMBERS)).map(lambda r: {"y": "one"}, schema={"y": int}).collect()
    with pytest.raises(a.Error) as raised:
        p.run()
    assert 'the column "y" has the type Int64, and the value is \'one\'' in str(raised.value)


def test_a_value_out_of_range_is_an_error_of_its_record() -> None:
    p = a.Pipeline("range", on_error="drop")
    numbers = p.read(a.items(NUMBERS))
    out = numbers.map(lambda r: {"y": 100 * r["x"]}, schema={"y": "int8"}).collect()
    p.run()
    assert out.rows() == [{"y": 0}, {"y": 100}]


def test_records_are_printed() -> None:
    p = a.Pipeline("print")
    p.read(a.items([{"x": 1}])).print()
    printed = io.StringIO()
    with redirect_stdout(printed):
        p.run()
    assert printed.getvalue() == "{'x': 1}\n"


def test_steps_on_columns_refuse_objects() -> None:
    objects = a.Pipeline("objects").read(a.items([1, 2]))
    with pytest.raises(a.Error, match="the records of this stream are objects"):
        objects.filter(a.col("x") > 1)
    with pytest.raises(a.Error, match="takes an expression or a function"):
        objects.filter(True)  # type: ignore[arg-type]
    with pytest.raises(a.Error, match="on_error is 'ignore'"):
        objects.map(str, on_error="ignore")
    with pytest.raises(a.Error, match="the type of the column"):
        objects.key_by(lambda r: r)


def test_objects_are_written_as_json(tmp_path: Path) -> None:
    p = a.Pipeline("objects")
    p.read(a.items([{"x": [1, 2]}, "text"])).write(a.files.json(tmp_path / "out.jsonl"))
    p.run()
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines == ['{"x":[1,2]}', '"text"']
