"""Functions in processes of their own."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List

import ardea as a
import pytest

#: The start of each job: the options, and a function that reports its process.
START = """
    import json, os, sys, threading, time
    import ardea as a

    p = a.Pipeline("processes")
    HOST = os.getppid()
"""

#: A limit that is long enough for any machine.
TIMEOUT_S = 240.0


class Job:
    """A job in a file of its own folder, with its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, text: str) -> "subprocess.CompletedProcess[str]":
        script = textwrap.dedent(START) + textwrap.dedent(text)
        (self.folder / "job.py").write_text(script)
        return subprocess.run(
            [sys.executable, "job.py"],
            cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )

    def rows(self, name: str = "out.jsonl") -> List[Dict[str, Any]]:
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def numbers(self) -> List[int]:
        return sorted(row["n"] for row in self.rows())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_functions_run_in_processes_with_the_same_results(job: Job) -> None:
    done = job.run("""
        p.functions(in_processes=True)
        numbers = p.read(a.generate.sequence(5000)).select(n=a.col("number"))
        kept = numbers.filter(lambda row: row["n"] % 2 == 0)
        pids = kept.map(lambda row: {"n": row["n"], "pid": os.getpid()}, schema={"n": int, "pid": int})
        doubled = pids.flat_map(lambda row: [row, row], schema={"n": int, "pid": int})
        rows = doubled.collect()
        p.run()
        assert sorted(row["n"] for row in rows) == sorted([n for n in range(0, 5000, 2)] * 2)
        assert os.getpid() not in {row["pid"] for row in rows}
    """)
    assert done.returncode == 0, done.stderr


def test_batch_functions_run_in_processes(job: Job) -> None:
    pytest.importorskip("pyarrow")
    done = job.run("""
        import pyarrow as pa
        import pyarrow.compute as pc

        @a.batch(adds={"twice": int})
        def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.append_column("twice", pc.multiply(batch["number"], 2))

        rows = p.read(a.generate.sequence(3000)).map(twice, process=True).collect()
        p.run()
        assert all(row["twice"] == 2 * row["number"] for row in rows) and len(rows) == 3000
    """)
    assert done.returncode == 0, done.stderr


def test_an_exception_ends_the_job_with_its_record(job: Job) -> None:
    done = job.run("""
        def inverse(row):
            return {"n": 1 // row["number"]}

        p.read(a.generate.sequence(3)).map(inverse, process=True).discard()
        try:
            p.run()
        except a.FunctionError as error:
            text = str(error)
            assert "ZeroDivisionError" in text and "job.py" in text and "'number': 0" in text, text
            print("refused")
    """)
    assert done.stdout == "refused\n", done.stderr


def test_failed_records_are_dead_letters(job: Job) -> None:
    done = job.run("""
        rows = p.read(a.generate.sequence(4)).map(
            lambda row: {"n": 6 // row["number"]}, schema={"n": int}, on_error="dead_letter", process=True
        ).collect()
        p.run(dead_letters="bad.jsonl")
        assert sorted(row["n"] for row in rows) == [2, 3, 6]
    """)
    assert done.returncode == 0, done.stderr
    assert ["ZeroDivisionError" in row["reason"] for row in job.rows("bad.jsonl")] == [True]


def test_a_record_that_ends_its_process_becomes_a_dead_letter(job: Job) -> None:
    done = job.run("""
        def checked(row):
            if row["number"] == 77:
                os._exit(3)
            return {"n": row["number"]}

        mapped = p.read(a.generate.sequence(200)).map(
            checked, schema={"n": int}, on_error="dead_letter", process=True
        )
        mapped.write(a.files.json("out.jsonl"))
        p.run(dead_letters="bad.jsonl", guarantee="exactly-once", checkpoints="checkpoints")
    """)
    assert done.returncode == 0, done.stderr
    assert job.numbers() == [n for n in range(200) if n != 77]
    (letter,) = job.rows("bad.jsonl")
    assert "77" in letter["raw"]


def test_a_killed_process_changes_no_output(job: Job) -> None:
    done = job.run("""
        def checked(row):
            if row["number"] in (500, 2500) and not os.path.exists(f"dead-{row['number']}"):
                open(f"dead-{row['number']}", "w").close()
                os.kill(os.getpid(), 9)
            return {"n": row["number"]}

        mapped = p.read(a.generate.sequence(4000)).map(checked, schema={"n": int}, process=True)
        mapped.write(a.files.json("out.jsonl"))
        p.run(guarantee="exactly-once", checkpoints="checkpoints")
        assert os.path.exists("dead-2500")
    """)
    assert done.returncode == 0, done.stderr
    assert job.numbers() == list(range(4000))


def test_an_endless_call_is_killed_after_its_time(job: Job) -> None:
    done = job.run("""
        def endless(row):
            while row["number"] == 3:
                pass
            return {"n": row["number"]}

        p.functions(in_processes=True, answer_timeout="1s", deaths_per_record=2)
        mapped = p.read(a.generate.sequence(6)).map(endless, schema={"n": int}, on_error="dead_letter")
        mapped.write(a.files.json("out.jsonl"))
        p.run(dead_letters="bad.jsonl")
    """)
    assert done.returncode == 0, done.stderr
    assert job.numbers() == [0, 1, 2, 4, 5]
    assert len(job.rows("bad.jsonl")) == 1


def test_a_function_that_eats_memory_is_killed(job: Job) -> None:
    done = job.run("""
        def hungry(row):
            eaten = []
            while row["number"] == 1:
                eaten.append(bytearray(8 << 20))
                time.sleep(0.001)
            return {"n": row["number"]}

        p.functions(in_processes=True, memory_bytes=600 << 20, deaths_per_record=2)
        p.read(a.generate.sequence(3)).map(hungry, schema={"n": int}, on_error="dead_letter").write(
            a.files.json("out.jsonl")
        )
        p.run(dead_letters="bad.jsonl")
    """)
    assert done.returncode == 0, done.stderr
    assert job.numbers() == [0, 2]
    assert len(job.rows("bad.jsonl")) == 1


def test_output_of_functions_is_bounded_and_does_not_stop_them(job: Job) -> None:
    done = job.run("""
        def loud(row):
            for _ in range(2000):
                sys.stdout.write("x" * 10_000 + "\\n")
            return {"n": row["number"]}

        rows = p.read(a.generate.sequence(20)).map(loud, schema={"n": int}, process=True).collect()
        p.run()
        assert len(rows) == 20
    """)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stderr) < 200_000_000


def test_functions_may_fork_and_start_threads(job: Job) -> None:
    done = job.run("""
        def busy(row):
            child = os.fork()
            if child == 0:
                os._exit(7)
            _, status = os.waitpid(child, 0)
            found = []
            thread = threading.Thread(target=lambda: found.append(row["number"]))
            thread.start()
            thread.join()
            return {"n": found[0] + os.waitstatus_to_exitcode(status)}

        rows = p.read(a.generate.sequence(5)).map(busy, schema={"n": int}, process=True).collect()
        p.run()
        assert sorted(row["n"] for row in rows) == [7, 8, 9, 10, 11]
    """)
    assert done.returncode == 0, done.stderr


def test_functions_in_processes_need_a_script() -> None:
    p = a.Pipeline("processes")
    p.read(a.items([{"n": 1}])).map(lambda row: row, process=True).discard()
    with pytest.raises(a.Error, match="need the script of the job"):
        p.run()


def test_a_function_is_in_the_process_of_the_job_by_default() -> None:
    p = a.Pipeline("processes")
    pids = p.read(a.items([{"n": 1}])).map(lambda row: os.getpid()).collect()
    p.run()
    assert pids.rows() == [os.getpid()]


COUNT = """
    class Count:
        def on_record(self, ctx, record):
            if record["number"] in (700, 2300) and not os.path.exists(f"dead-{record['number']}"):
                open(f"dead-{record['number']}", "w").close()
                os.kill(os.getpid(), 9)
            ctx.state = (ctx.state or 0) + 1
            ctx.set_timer(10_000)

        def on_timer(self, ctx):
            ctx.emit({"key": ctx.key, "count": ctx.state, "pid": os.getpid()})
            ctx.clear_state()

    def counted(process):
        numbers = p.read(a.generate.at_rate(4000, limit=4000))
        timed = numbers.with_column("key", a.col("number") % 40).with_timestamps(
            a.col("number").cast("timestamp[s]"), max_ahead=None
        )
        return timed.key_by("key").process(
            Count, name="count", schema={"key": int, "count": int, "pid": int}, process=process
        )
"""


def test_a_function_with_state_and_timers_runs_in_processes(job: Job) -> None:
    for number in (700, 2300):
        (job.folder / f"dead-{number}").touch()
    done = job.run(textwrap.dedent(COUNT) + textwrap.dedent("""
        rows = counted(True).collect()
        p.run()
        assert sorted((row["key"], row["count"]) for row in rows) == [(key, 100) for key in range(40)]
        assert os.getpid() not in {row["pid"] for row in rows}
    """))
    assert done.returncode == 0, done.stderr


def test_the_state_of_a_killed_process_is_restored(job: Job) -> None:
    done = job.run(textwrap.dedent(COUNT) + textwrap.dedent("""
        counted(True).write(a.files.json("out.jsonl"))
        p.run(
            guarantee="exactly-once",
            checkpoints="checkpoints",
            settings={"checkpoints.every": "10ms"},
        )
        assert os.path.exists("dead-2300")
    """))
    assert done.returncode == 0, done.stderr
    counts = sorted((row["key"], row["count"]) for row in job.rows())
    assert counts == [(key, 100) for key in range(40)]


def test_an_exception_of_a_function_with_state_names_its_record(job: Job) -> None:
    done = job.run("""
        def inverse(ctx, record):
            ctx.emit(1 // record["number"])

        p.read(a.generate.sequence(3)).key_by("number").process(inverse, process=True).discard()
        try:
            p.run()
        except a.FunctionError as error:
            text = str(error)
            assert "ZeroDivisionError" in text and "'number': 0" in text, text
            print("refused")
    """)
    assert done.stdout == "refused\n", done.stderr


def test_failed_records_of_a_function_with_state_are_dead_letters(job: Job) -> None:
    done = job.run("""
        def inverse(ctx, record):
            ctx.emit({"n": 6 // record["number"]} if record["number"] < 3 else {"n": "six"})

        rows = p.read(a.generate.sequence(4)).key_by("number").process(
            inverse, schema={"n": int}, on_error="dead_letter", process=True
        ).collect()
        p.run(dead_letters="bad.jsonl")
        assert sorted(row["n"] for row in rows) == [3, 6]
    """)
    assert done.returncode == 0, done.stderr
    assert len(job.rows("bad.jsonl")) == 2


def test_a_processing_timer_in_a_process_fails_the_job(job: Job) -> None:
    done = job.run("""
        def timed(ctx, record):
            ctx.set_processing_timer("1s")

        p.read(a.generate.sequence(1)).key_by("number").process(timed, process=True).discard()
        try:
            p.run()
        except a.FunctionError as error:
            assert "no timers in processing time" in str(error), error
            print("refused")
    """)
    assert done.stdout == "refused\n", done.stderr
