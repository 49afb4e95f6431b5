"""The command line of a job: ``python job.py submit --cluster NAME``."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import List, NoReturn, Protocol

from . import _ardea
from .errors import Error, invalid
from .packages import RequirementsFolder, files_of, take_options
from .processes import is_process_of_function, served_component
from .programs import write_program

#: The commands of a job, as of programs in Rust.
COMMANDS = (
    "run",
    "plan",
    "submit",
    "upgrade",
    "checkpoints",
    "savepoint",
    "diff",
    "states",
)

#: The command line of the hosts that a submission starts.
HOST_COMMAND = [sys.executable, "-m", "ardea"]


class CommandJob(Protocol):
    """The job of a command."""

    def main(self, words: List[str], program: str, name: str, host: List[str]) -> int:
        """Runs the command ``words`` for this job, and returns the exit code. ``program`` is the file
        that a container runs, ``name`` its name there, and ``host`` the command line of hosts."""


def has_command(module: str) -> bool:
    """Returns true if a script that runs as ``module`` has a command, or is a process of a
    cluster."""
    if _ardea.is_process_of_cluster():
        return True
    return module == "__main__" and sys.argv[1:2] != [] and sys.argv[1] in COMMANDS


def arguments() -> List[str]:
    """Returns the job's own arguments: those of the command line after a command and its options.

    ``python job.py in.txt`` and ``python job.py submit --detach in.txt`` have the argument
    ``in.txt``. A job has the same arguments on a cluster.
    """
    words = sys.argv[1:]
    is_served = is_process_of_function() or served_component() is not None
    is_process = is_served or _ardea.is_process_of_cluster()
    if not words or words[0] not in COMMANDS or is_process:
        return words
    try:
        return _ardea.job_arguments(take_options(words)[1])
    except Error as error:
        fail(error)


def fail(error: Error) -> NoReturn:
    """Reports a wrong command line, and ends the process."""
    sys.stderr.write(f"error: {error.code}: {error.message}\n  hint: {error.hint}\n")
    sys.exit(2)


def main(job: CommandJob, flags: List[str]) -> NoReturn:
    """Runs the command of a script, or the worker of a container, and ends the process."""
    words = sys.argv[1:]
    if _ardea.is_process_of_cluster():
        sys.exit(_run(words, job, sys.argv[0]))
    command, rest = words[0], words[1:]
    settings = [word for flag in flags for word in ("--set", flag)]
    words = [command, *settings, *rest]
    if command not in ("submit", "upgrade"):
        sys.exit(_run(words, job, sys.argv[0]))
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise invalid("a job without a file cannot be submitted", "write the job to a file")
    try:
        options, words = take_options(words)
        packages = None
        if options.are_given():
            packages = files_of(options, RequirementsFolder.of(options))
    except Error as error:
        fail(error)
    with tempfile.TemporaryDirectory(prefix="ardea-job-") as folder:
        program = os.path.join(folder, "job")
        write_program(program, script, packages)
        sys.exit(_run(words, job, program))


def _run(words: List[str], job: CommandJob, program: str) -> int:
    return job.main(words, program, os.path.basename(program), HOST_COMMAND)
