"""``python -m ardea``: the process of a host, and the commands for scripts of jobs."""

import runpy
import sys

from . import _ardea
from .commands import COMMANDS, HOST_COMMAND

_USAGE = """\
usage: python -m ardea COMMAND [OPTIONS] JOB.py [ARGS]
       python -m ardea bench

Runs a command of a job, as `python JOB.py COMMAND` does. The commands are {commands}.
"""


def main() -> int:
    """Runs a command, and returns the exit code."""
    if _ardea.is_process_of_cluster():
        return _ardea.host(HOST_COMMAND)
    words = sys.argv[1:]
    script = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if not words or words[0] not in COMMANDS or script is None:
        sys.stderr.write(_USAGE.format(commands=", ".join(COMMANDS)))
        return 0 if words[:1] in (["--help"], ["-h"]) else 2
    sys.argv = [words[script], *words[:script], *words[script + 1 :]]
    runpy.run_path(words[script], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
