"""Real servers for tests, from ``scripts/services``."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, TypeVar

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "services"

#: A limit that is long enough for any machine.
TIMEOUT_S = 180.0

T = TypeVar("T")


class Service:
    """A running server. It stops when ``stop`` closes its standard input."""

    def __init__(self, name: str, ports: int = 1) -> None:
        self.ports = [free_port() for _ in range(ports)]
        # A server may run as another user, who cannot read folders of pytest.
        self._folder = tempfile.mkdtemp(prefix=f"ardea-{name}-")
        os.chmod(self._folder, 0o711)
        command = ["bash", str(SCRIPTS / f"{name}.sh"), self._folder, *map(str, self.ports)]
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
        shutil.rmtree(self._folder, ignore_errors=True)


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
        pytest.skip(f"this build is without {system}")
