"""The packages that a submitted job takes with it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from typing import Dict, List, Optional, Tuple

from .errors import Error

#: The distributions that are not packed with an environment.
_TOOLS = ("pip", "setuptools", "wheel", "ardea")


class PackageOptions:
    """The options of a submission for packages: a file of requirements, or the environment of the
    interpreter."""

    def __init__(self) -> None:
        self.requirements: Optional[str] = None
        self.with_environment = False

    def are_given(self) -> bool:
        """Returns true if packages are packed."""
        return self.requirements is not None or self.with_environment


def take_options(words: List[str]) -> Tuple[PackageOptions, List[str]]:
    """Takes ``--requirements FILE`` and ``--with-environment`` out of a command line. Returns the
    other words. Those after ``--`` belong to the job."""
    options = PackageOptions()
    rest: List[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            return options, [*rest, word, *words[index:]]
        if word == "--with-environment":
            options.with_environment = True
        elif word.startswith("--requirements="):
            options.requirements = word.partition("=")[2]
        elif word == "--requirements":
            if index == len(words):
                raise _unusable("--requirements names no file", "write --requirements FILE")
            options.requirements = words[index]
            index += 1
        else:
            rest.append(word)
    if options.requirements is not None and options.with_environment:
        raise _unusable(
            "--requirements and --with-environment exclude each other", "give one of them"
        )
    return options, rest


def installed(options: PackageOptions, folder: str) -> None:
    """Installs the packages of a file of requirements into a folder."""
    requirements = options.requirements
    if requirements is None:
        return
    if not os.path.isfile(requirements):
        raise _unusable(f"there is no file {requirements}", "name a file of requirements")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-compile", "--target", folder, "--requirement", requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip()
        raise _unusable(
            f"pip cannot install the packages of {requirements}: {reason}",
            "check the file, and the access to the package index",
        )


def files_of(options: PackageOptions, folder: Optional[str]) -> Dict[str, str]:
    """Returns the files of the packages to pack, by their names in a folder of packages, with those
    of this package. ``folder`` has the installed requirements."""
    files = _files_below(os.path.dirname(os.path.abspath(__file__)), "ardea")
    if folder is not None:
        files.update(_files_below(folder, ""))
    if options.with_environment:
        files.update(_environment())
    return files


def _environment() -> Dict[str, str]:
    """Returns the files of the distributions of this interpreter's environment."""
    roots = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    files: Dict[str, str] = {}
    for distribution in metadata.distributions():
        if distribution.metadata["Name"] in _TOOLS:
            continue
        for file in distribution.files or []:
            path = os.path.realpath(str(distribution.locate_file(file)))
            for root in roots:
                if path.startswith(root + os.sep) and os.path.isfile(path) and _is_packed(path):
                    files[os.path.relpath(path, root)] = path
    return files


def _files_below(folder: str, prefix: str) -> Dict[str, str]:
    files = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if _is_packed(path):
                files[os.path.join(prefix, os.path.relpath(path, folder))] = path
    return files


def _is_packed(path: str) -> bool:
    return "__pycache__" not in path.split(os.sep) and not path.endswith(".pyc")


def _unusable(message: str, hint: str) -> Error:
    return Error(message, code="ARD-102", hint=hint)


class RequirementsFolder:
    """A folder with the packages of a file of requirements, for this process and the program of the
    job. It is removed at the end of the process."""

    _made: Dict[str, "RequirementsFolder"] = {}

    def __init__(self, options: PackageOptions) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ardea-packages-")
        installed(options, self._folder.name)

    @classmethod
    def of(cls, options: PackageOptions) -> Optional[str]:
        """Returns the folder, and installs the packages on the first call; ``None`` without
        requirements."""
        if options.requirements is None:
            return None
        key = os.path.abspath(options.requirements)
        if key not in cls._made:
            cls._made[key] = cls(options)
        return cls._made[key]._folder.name
