"""A job on a cluster of processes of this machine."""

import json
import os
import subprocess
import sys
import time
import textwrap
from pathlib import Path
from typing import Any, Dict, List

import pytest

JOB = """
    import json
    import sys
    import ardea as a
    from helper import doubled

    source, target = a.arguments()
    p = a.Pipeline("doubling")
    (
        p.read(a.files.json(source, schema={"k": str, "v": int}))
        .map(doubled, schema={"k": str, "v": int})
        .key_by("k")
        .aggregate("sums", total=a.sum("v"))
        .write(a.files.json(target))
    )
    p.run()
"""

HELPER = """
    def doubled(row):
        return {"k": row["k"], "v": 2 * row["v"]}
"""

#: A limit that is long enough for any machine.
TIMEOUT_S = 180.0


class Site:
    """A folder with a job and its cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "job.py").write_text(textwrap.dedent(JOB))
        (folder / "helper.py").write_text(textwrap.dedent(HELPER))
        rows = [{"k": "ab"[n % 2], "v": n} for n in range(100)]
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ARDEA_")
        }
        environment.update({"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)})
        return subprocess.run(
            [sys.executable, "job.py", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def arguments(self) -> List[str]:
        return [str(self.folder / "in.jsonl"), str(self.folder / "out.jsonl")]

    def totals(self) -> Dict[str, int]:
        """Returns the result; empty before the file is complete."""
        path = self.folder / "out.jsonl"
        if not path.exists():
            return {}
        rows: List[Dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
        return {row["k"]: row["total"] for row in rows}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


TOTALS = {"a": 2 * sum(range(0, 100, 2)), "b": 2 * sum(range(1, 100, 2))}


def test_a_job_runs_in_its_own_process_with_its_arguments(site: Site) -> None:
    done = site.run(*site.arguments())
    assert done.returncode == 0, done.stderr
    assert site.totals() == TOTALS


def test_a_plan_runs_nothing(site: Site) -> None:
    done = site.run("plan", *site.arguments())
    assert done.returncode == 0, done.stderr
    assert "sums" in done.stdout
    assert site.totals() == {}


def test_a_submitted_job_runs_on_a_cluster(site: Site) -> None:
    folder = site.folder / "cluster"
    settings = ["--set", f"cluster.directory={folder}", "--set", "job.containers=2"]
    done = site.run("submit", *settings, *site.arguments())
    logs = "\n".join(
        path.read_text(errors="replace") for path in folder.rglob("*") if path.suffix == ".log"
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    deadline = time.monotonic() + TIMEOUT_S
    while site.totals() != TOTALS:
        assert time.monotonic() < deadline, f"{done.stdout}\n{done.stderr}"
        time.sleep(0.05)


def test_a_wrong_option_is_a_usage_error(site: Site) -> None:
    done = site.run("submit", "--clutser", "prod", *site.arguments())
    assert done.returncode == 2
    assert "--cluster" in done.stderr
