"""Jobs by expressions, files and collections."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List

import pytest

import ardea as a

BIDS = [
    {"auction": 1, "price": 20, "date_time": "2020-01-01T00:00:01Z"},
    {"auction": 2, "price": 5, "date_time": "2020-01-01T00:00:02Z"},
    {"auction": 1, "price": 30, "date_time": "2020-01-01T00:00:03Z"},
]


def write_lines(path: Path, records: List[Dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read_lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    write_lines(tmp_path / "bids.jsonl", BIDS)
    p = a.Pipeline("hot")
    (
        p.read(a.files.json(tmp_path / "bids.jsonl"))
        .with_timestamps("date_time", lag="5s")
        .filter(a.col("price") > 10)
        .key_by("auction")
        .window(a.sliding("10s", "1s"))
        .aggregate(bids=a.count(), best=a.max("price"))
        .write(a.files.json(tmp_path / "hot.jsonl"))
    )
    assert p.run().state == "completed"
    hot = read_lines(tmp_path / "hot.jsonl")
    assert all(record["auction"] == 1 for record in hot)
    assert max(record["bids"] for record in hot) == 2
    assert len(hot) == 12


def test_columns_are_selected_added_and_removed() -> None:
    p = a.Pipeline("columns")
    out = (
        p.read(a.items([{"x": 1, "y": 2.5}]))
        .with_column("z", a.col("x") * 2)
        .select("z", "y", sum=a.col("x") + a.col("z"))
        .drop("y")
        .collect()
    )
    p.run()
    assert out.rows() == [{"z": 2, "sum": 3}]


def test_a_stream_may_be_read_several_times() -> None:
    p = a.Pipeline("twice")
    numbers = p.read(a.items([{"x": n} for n in range(10)]))
    small = numbers.filter(a.col("x") < 3).collect()
    large = numbers.filter(a.col("x") > 7).collect()
    everything = numbers.collect()
    p.run()
    assert [row["x"] for row in small] == [0, 1, 2]
    assert [row["x"] for row in large] == [8, 9]
    assert len(everything) == 10


def test_groups_are_aggregated_at_the_end_of_a_bounded_stream() -> None:
    p = a.Pipeline("groups")
    rows = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 4}]
    out = p.read(a.items(rows)).key_by("k").aggregate(n=a.count(), total=a.sum("v")).collect()
    p.run()
    assert sorted(out.rows(), key=lambda row: str(row["k"])) == [
        {"k": "a", "n": 2, "total": 5},
        {"k": "b", "n": 1, "total": 2},
    ]


def test_late_records_are_a_stream_of_their_own() -> None:
    p = a.Pipeline("late")
    rows = [{"t": 10}, {"t": 20}, {"t": 1}]
    # A batch has one record, so that the watermark passes between them.
    stream = p.read(a.Items(rows, batch_rows=1)).with_timestamps(lambda row: row["t"])
    results, late = stream.key_by("t").window(a.tumbling("5s")).aggregate_and_late(n=a.count())
    on_time, too_late = results.collect(), late.collect()
    p.run(threads=1)
    assert sorted(row["t"] for row in on_time) == [10, 20]
    assert too_late.rows() == [{"t": 1}]


def test_csv_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('name,n\n"a, b",1\nc,2\n')
    p = a.Pipeline("csv")
    rows = p.read(a.files.csv(tmp_path / "in.csv")).with_column("m", a.col("n") * 10)
    rows.write(a.files.csv(tmp_path / "out.csv"))
    p.run()
    assert (tmp_path / "out.csv").read_text() == 'name,n,m\n"a, b",1,10\nc,2,20\n'


def test_parquet_is_read_and_written(tmp_path: Path) -> None:
    p = a.Pipeline("write")
    p.read(a.items([{"x": n, "y": f"n{n}"} for n in range(5)])).write(
        a.files.parquet(tmp_path / "numbers.parquet")
    )
    p.run()
    p = a.Pipeline("read")
    numbers = a.files.parquet(tmp_path / "numbers.parquet", columns=["x"])
    out = p.read(numbers).filter(a.col("x") > 2).collect()
    p.run()
    assert out.rows() == [{"x": 3}, {"x": 4}]


def test_an_unknown_column_is_refused_with_the_known_ones_and_the_line() -> None:
    p = a.Pipeline("unknown")
    p.read(a.items([{"price": 1}])).filter(a.col("prise") > 1).collect()
    with pytest.raises(a.Error, match='there is no column "prise"') as raised:
        p.run()
    assert raised.value.code == "ARD-101"
    assert "price: Int64" in str(raised.value)
    assert "test_pipelines.py:" in str(raised.value.hint)


def test_windows_without_event_time_are_refused() -> None:
    p = a.Pipeline("untimed")
    p.read(a.items([{"x": 1}])).key_by("x").window(a.tumbling("1s")).aggregate(
        n=a.count()
    ).collect()
    with pytest.raises(a.Error, match="needs records with event time"):
        p.run()


def test_a_missing_file_is_named() -> None:
    p = a.Pipeline("missing")
    p.read(a.files.json("/no/such/file.jsonl")).collect()
    with pytest.raises(a.Error, match="/no/such/file.jsonl") as raised:
        p.run()
    assert raised.value.code == "ARD-301"


def test_a_stream_without_a_sink_is_refused() -> None:
    p = a.Pipeline("open")
    p.read(a.items([{"x": 1}])).filter(a.col("x") > 0)
    with pytest.raises(a.Error, match="nothing reads"):
        p.run()


def test_bad_records_go_to_the_file_of_dead_letters(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"x":1}\n{"x":"y"}\n{"x":0}\n')
    p = a.Pipeline("bad")
    numbers = p.read(a.files.json(tmp_path / "in.jsonl", schema={"x": int}))
    out = numbers.with_column("y", 10 / a.col("x")).collect()
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    assert out.rows() == [{"x": 1, "y": 10}]
    assert len(read_lines(tmp_path / "bad.jsonl")) == 2


def test_a_setting_that_does_not_exist_is_refused() -> None:
    p = a.Pipeline("settings")
    p.read(a.items([{"x": 1}])).collect()
    with pytest.raises(a.Error) as raised:
        p.run(settings={"no.such.setting": 1})
    assert raised.value.code == "ARD-102"


def test_a_job_with_a_guarantee_writes_each_result_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", [{"k": n % 3, "v": n} for n in range(1000)])
    p = a.Pipeline("guaranteed")
    (
        p.read(a.files.json(tmp_path / "in.jsonl"))
        .key_by("k")
        .aggregate("sums", total=a.sum("v"))
        .write(a.files.json(tmp_path / "out.jsonl"))
    )
    p.run(guarantee="exactly-once", checkpoints=str(tmp_path / "checkpoints"))
    totals = {record["k"]: record["total"] for record in read_lines(tmp_path / "out.jsonl")}
    assert totals == {k: sum(n for n in range(1000) if n % 3 == k) for k in range(3)}


ENDLESS = """
    import os, sys, time
    import ardea as a

    def numbers(record):
        print("ready", flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        return [record]

    p = a.Pipeline("interrupted")
    p.read(a.items([{"x": 1}])).flat_map(numbers).print()
    print(p.run().state, flush=True)
"""


def test_ctrl_c_drains_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(ENDLESS))
    go = tmp_path / "go"
    job = subprocess.Popen(
        [sys.executable, str(script), str(go)], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    os.kill(job.pid, signal.SIGINT)
    go.touch()
    rest = job.stdout.read()
    assert job.wait() == 0
    assert "{'x': 1}" in rest
    assert rest.splitlines()[-1] in ("drained", "completed")


RESUMED = """
    import os, sys, time
    import ardea as a

    def watched(record):
        if record["x"] == 500:
            print("ready", flush=True)
            while not os.path.exists("go"):
                time.sleep(0.01)
        return True

    p = a.Pipeline("resumed")
    numbers = p.read(a.files.json("in.jsonl", in_order=True)).filter(watched)
    numbers.write(a.files.json("out.jsonl"))
    print(p.run(guarantee="exactly-once", checkpoints="checkpoints").state)
"""


def test_a_job_with_a_guarantee_continues_after_ctrl_c(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", [{"x": n} for n in range(50_000)])
    (tmp_path / "job.py").write_text(textwrap.dedent(RESUMED))
    command = [sys.executable, "job.py"]
    job = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    os.kill(job.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    states = [job.stdout.read().split()[-1]]
    assert job.wait() == 0
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    states.append(again.stdout.split()[-1])
    assert states[0] in ("drained", "completed") and states[1] == "completed"
    paths = sorted(tmp_path.glob("out*.jsonl"))
    written = [record["x"] for path in paths for record in read_lines(path)]
    assert sorted(written) == list(range(50_000))
