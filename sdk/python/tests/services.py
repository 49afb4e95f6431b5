"""Real servers for tests, from ``scripts/services``."""

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, List, TypeVar

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "services"

#: A limit that is long enough for any machine.
TIMEOUT_S = 180.0

T = TypeVar("T")


class Service:
    """A running server. It stops when ``stop`` closes its standard input."""

    def __init__(self, name: str, folder: Path, ports: List[int]) -> None:
        self.ports = ports
        self.folder = folder
        command = ["bash", str(SCRIPTS / f"{name}.sh"), str(folder), *map(str, ports)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready"):
            _, errors = self._process.communicate(timeout=TIMEOUT_S)
            reason = errors.strip().rpartition("\n")[2]
            if self._process.returncode == 75:
                pytest.skip(f"{name}: {reason}")
            raise AssertionError(f"{name} does not start: {errors}")

    def stop(self) -> None:
        """Stops the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(condition: Callable[[], T]) -> T:
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition was not reached in time"
        time.sleep(0.02)


def run(*words: str, given: str = "") -> str:
    """Runs a command of a server's tools, and returns its output."""
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def require(system: str) -> None:
    """Skips a test if the module is built without a system."""
    from ardea import _ardea

    if system not in _ardea.built_with():
        if os.environ.get("ARDEA_REQUIRE_ALL"):
            pytest.fail(f"this build is without {system}")
        pytest.skip(f"this build is without {system}")
