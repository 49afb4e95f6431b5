"""The packages of programs, unpacked on a host."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict

import pytest
from ardea import unpacking

START = """
import sys
import tempfile
from ardea.unpacking import unpacked

folder = unpacked(sys.argv[1], sys.argv[2], "site-packages/")
print(open(folder + "/tiny.py").read(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("site-packages/tiny.py", "tiny")
    return path


class Host:
    """The temporary folder of a host."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder / "tmp"
        self.folder.mkdir()
        self.packages = self.folder / f"ardea-packages-{os.getuid()}"
        self._program = program

    def start(self, digest: str) -> "subprocess.Popen[str]":
        """Starts a process that uses packages until its input ends."""
        environment: Dict[str, Any] = {**os.environ, "TMPDIR": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(self._program), digest],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "tiny\n"
        return process

    def end(self, process: "subprocess.Popen[str]") -> None:
        process.communicate(timeout=60)
        assert process.returncode == 0

    def kill(self, process: "subprocess.Popen[str]") -> None:
        process.kill()
        process.communicate(timeout=60)

    def unpacked(self) -> Any:
        return sorted(path.name for path in self.packages.iterdir() if path.suffix != ".lock")

    def age(self) -> None:
        """Lets all files look unused for long."""
        for path in self.packages.iterdir():
            os.utime(path, (1, 1))


@pytest.fixture
def host(tmp_path: Path, program: Path) -> Host:
    return Host(tmp_path, program)


def test_the_last_process_removes_its_packages(host: Host) -> None:
    first, second = host.start("one"), host.start("one")
    host.end(first)
    assert host.unpacked() == ["one"]
    host.end(second)
    assert list(host.packages.iterdir()) == []


def test_a_killed_process_keeps_its_packages_for_a_restart(host: Host) -> None:
    host.kill(host.start("one"))
    other = host.start("two")
    assert host.unpacked() == ["one", "two"]
    host.end(host.start("one"))
    assert host.unpacked() == ["two"]
    host.end(other)


def test_packages_that_no_process_uses_are_removed_later(host: Host) -> None:
    host.kill(host.start("one"))
    used = host.start("two")
    (host.packages / "removed-1-x").mkdir()
    (host.packages / "tmpabc").mkdir()
    host.age()
    third = host.start("three")
    assert host.unpacked() == ["three", "two"]
    host.end(third)
    host.end(used)
    assert list(host.packages.iterdir()) == []


def test_a_folder_of_other_users_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(host.folder))
    host.packages.mkdir()
    host.packages.chmod(0o777)
    with pytest.raises(SystemExit, match="may be written by other users"):
        unpacking._folder()
