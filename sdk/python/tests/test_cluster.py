"""A job on a cluster of processes of this machine."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Sequence

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

    def run(
        self, *words: str, program: Sequence[str] = (sys.executable, "job.py"), **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ARDEA_")
        }
        environment.update({"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)})
        environment.update(variables)
        return subprocess.run(
            [*program, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def arguments(self) -> List[str]:
        return [str(self.folder / "in.jsonl"), str(self.folder / "out.jsonl")]

    def cluster(self) -> List[str]:
        return ["--set", f"cluster.directory={self.folder / 'cluster'}"]

    def wait_for_totals(self, done: "subprocess.CompletedProcess[str]") -> None:
        """Waits for the result of a submitted job."""
        files = (self.folder / "cluster").rglob("*.log")
        logs = "\n".join(path.read_text(errors="replace") for path in files)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
        deadline = time.monotonic() + TIMEOUT_S
        while self.totals() != TOTALS:
            assert time.monotonic() < deadline, f"{done.stdout}\n{done.stderr}\n{logs}"
            time.sleep(0.05)

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
    done = site.run("submit", *site.cluster(), "--set", "job.containers=2", *site.arguments())
    site.wait_for_totals(done)


COUNTING = """
    import ardea as a
    from ardea import metrics

    def counted(row):
        metrics.counter("rows").add(1)
        return row

    (target,) = a.arguments()
    p = a.Pipeline("counting")
    numbers = p.read(a.generate.at_rate(500, limit=100_000))
    numbers.map(counted, schema={"number": int}).write(a.files.json(target))
    p.run()
"""


def test_metrics_of_a_function_in_the_process_of_a_job_are_those_of_its_step(site: Site) -> None:
    ardea = os.environ.get("TEST_ARDEA_PROGRAM") or shutil.which("ardea")
    if not ardea:
        pytest.skip("there is no program ardea (TEST_ARDEA_PROGRAM)")
    (site.folder / "job.py").write_text(textwrap.dedent(COUNTING))
    done = site.run("submit", *site.cluster(), "--detach", str(site.folder / "out.jsonl"))
    assert done.returncode == 0, done.stderr
    command = ["metrics", "counting", "--name", "ardea_user_rows_total", "--json", *site.cluster()]
    deadline = time.monotonic() + TIMEOUT_S
    samples: List[Dict[str, Any]] = []
    while not samples:
        told = site.run(*command, program=(ardea,))
        assert time.monotonic() < deadline, told.stderr
        samples = json.loads(told.stdout) if told.returncode == 0 else []
    assert samples[0]["value"] > 0 and samples[0]["labels"]["vertex"] == "counted", samples
    assert site.run("kill", "counting", *site.cluster(), program=(ardea,)).returncode == 0


@pytest.fixture
def wheel(site: Site) -> Path:
    """A package that this environment does not have: the site's helper as `tinydouble`."""
    path = site.folder / "tinydouble-1.0-py3-none-any.whl"
    information = "tinydouble-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tinydouble/__init__.py", textwrap.dedent(HELPER))
        archive.writestr(
            f"{information}/METADATA", "Metadata-Version: 2.1\nName: tinydouble\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")
    job = (site.folder / "job.py").read_text()
    (site.folder / "job.py").write_text(job.replace("from helper", "from tinydouble"))
    (site.folder / "helper.py").unlink()
    (site.folder / "requirements.txt").write_text(f"--no-index\n./{path.name}\n")
    return path


def test_packages_of_a_requirements_file_travel_with_the_job(site: Site, wheel: Path) -> None:
    program = (sys.executable, "-m", "ardea", "submit")
    words = ["--requirements", "requirements.txt", *site.cluster(), "job.py", "--"]
    done = site.run(*words, *site.arguments(), program=program, TMPDIR=str(site.folder))
    site.wait_for_totals(done)
    # The last process that uses the packages removes them.
    folder = site.folder / f"ardea-packages-{os.getuid()}"
    deadline = time.monotonic() + TIMEOUT_S
    while list(folder.iterdir()):
        assert time.monotonic() < deadline, list(folder.iterdir())
        time.sleep(0.05)


def test_a_missing_package_fails_the_submission(site: Site, wheel: Path) -> None:
    done = site.run("submit", *site.cluster(), *site.arguments())
    assert "No module named 'tinydouble'" in done.stderr
    (site.folder / "requirements.txt").write_text("--no-index\nno-such-package-anywhere\n")
    program = (sys.executable, "-m", "ardea", "submit", "--requirements=requirements.txt")
    done = site.run("job.py", "--", *site.arguments(), program=program)
    assert done.returncode == 2
    assert "ARD-102" in done.stderr and "no-such-package-anywhere" in done.stderr


def test_the_program_ardea_submits_a_script(site: Site) -> None:
    ardea = os.environ.get("TEST_ARDEA_PROGRAM") or shutil.which("ardea")
    if not ardea:
        pytest.skip("there is no program ardea (TEST_ARDEA_PROGRAM)")
    program = (ardea, "submit", "--python", sys.executable)
    done = site.run(*site.cluster(), "job.py", "--", *site.arguments(), program=program)
    site.wait_for_totals(done)


def test_the_program_of_a_job_has_the_same_digest_each_time(tmp_path: Path) -> None:
    from ardea.programs import write_program

    (tmp_path / "job.py").write_text("pass")
    packages = {"tiny/__init__.py": str(tmp_path / "job.py")}
    for name in ("one", "two"):
        write_program(str(tmp_path / name), str(tmp_path / "job.py"), packages)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    first = (tmp_path / "one").read_bytes().partition(b"\n")[0]
    assert first == b"#!" + os.path.realpath(sys.executable).encode()


def test_options_for_packages_are_taken_up_to_the_arguments_of_the_job() -> None:
    from ardea.packages import take_options

    options, rest = take_options(
        ["submit", "--requirements", "r.txt", "--name", "x", "--", "--requirements", "y"]
    )
    assert options.requirements == "r.txt"
    assert rest == ["submit", "--name", "x", "--", "--requirements", "y"]


def test_a_wrong_option_is_a_usage_error(site: Site) -> None:
    done = site.run("submit", "--clutser", "prod", *site.arguments())
    assert done.returncode == 2
    assert "--cluster" in done.stderr
