"""``python -m ardea``: the process of a host, and the commands for scripts of jobs."""

import os
import runpy
import sys

from . import _ardea
from .commands import COMMANDS, HOST_COMMAND, fail
from .errors import Error
from .packages import RequirementsFolder, take_options

_USAGE = """\
usage: python -m ardea COMMAND [OPTIONS] JOB.py [ARGS]
       python -m ardea component MODULE:CLASS

Runs a command of a job, as `python JOB.py COMMAND` does. The commands are {commands}.

Options of `submit` and `upgrade` for packages that the hosts do not have:
  --requirements FILE    pack the packages of this file with the job
  --with-environment     pack the packages of this interpreter's environment with the job
"""


def main() -> int:
    """Runs a command, and returns the exit code."""
    if _ardea.is_process_of_cluster():
        return _ardea.host(HOST_COMMAND)
    words = sys.argv[1:]
    if words[:1] == ["component"]:
        from .topology import processes

        return processes.main(words[1:])
    script = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if not words or words[0] not in COMMANDS or script is None:
        sys.stderr.write(_USAGE.format(commands=", ".join(COMMANDS)))
        return 0 if words[:1] in (["--help"], ["-h"]) else 2
    try:
        # The script may import the packages.
        folder = RequirementsFolder.of(take_options(words[:script])[0])
    except Error as error:
        fail(error)
    sys.argv = [words[script], *words[:script], *words[script + 1 :]]
    sys.path[0] = os.path.dirname(os.path.abspath(words[script]))
    if folder is not None:
        sys.path.insert(1, folder)
    runpy.run_path(words[script], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
