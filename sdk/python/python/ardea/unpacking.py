"""The packages of a program, unpacked on a host.

This file is also a module of each program with packages: it runs before they can be imported, and
uses no other module of this package.
"""

import atexit
import errno
import fcntl
import os
import shutil
import tempfile
import time
import zipfile

#: The time after which a folder that no process uses is removed at the start of another program.
UNUSED_S = 3600.0

_LOCK = ".lock"
_REMOVED = "removed-"


def unpacked(program: str, digest: str, packages: str) -> str:
    """Returns the folder with the packages of a program, and unpacks them if there is none.

    ``packages`` is their folder in the program, and ``digest`` the name of their folder on the host.
    This process uses the folder until it ends. The last process that uses a folder removes it at its
    normal end. Folders of killed processes are removed at a later start of a program.
    """
    folder = _folder()
    target = os.path.join(folder, digest)
    lock = _locked(target + _LOCK, fcntl.LOCK_SH)
    if not os.path.isdir(target):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            with zipfile.ZipFile(program) as archive:
                names = [name for name in archive.namelist() if name.startswith(packages)]
                archive.extractall(made, names)
            try:
                os.rename(os.path.join(made, packages), target)
            except OSError:
                # Another process of the job was faster.
                if not os.path.isdir(target):
                    raise
    _remove_unused(folder)
    atexit.register(_leave, target, lock)
    return target


def _folder() -> str:
    """Returns the folder of this user's packages."""
    user = os.getuid()
    folder = os.path.join(tempfile.gettempdir(), f"ardea-packages-{user}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if status.st_uid != user or status.st_mode & 0o022:
        raise SystemExit(f"{folder} may be written by other users: remove it")
    return folder


def _locked(path: str, mode: int) -> int:
    """Opens the lock of a folder, and locks it. Its file may be replaced at the same time."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, mode)
            if os.stat(path).st_ino == os.fstat(lock).st_ino:
                os.utime(lock)
                return lock
        except FileNotFoundError:
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)


def _leave(target: str, lock: int) -> None:
    """Removes a folder at the end of the last process that uses it."""
    os.close(lock)
    _remove_if_free(target)


def _remove_if_free(target: str) -> None:
    """Removes a folder if no process uses it."""
    try:
        lock = _locked(target + _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return
        raise
    try:
        # A folder has its name only as long as it is complete.
        folder, digest = os.path.split(target)
        removed = os.path.join(folder, f"{_REMOVED}{os.getpid()}-{digest}")
        if os.path.isdir(target):
            os.rename(target, removed)
        os.unlink(target + _LOCK)
    finally:
        os.close(lock)
    shutil.rmtree(removed, ignore_errors=True)


def _remove_unused(folder: str) -> None:
    """Removes folders that no process uses any more, and what killed processes have left."""
    limit = time.time() - UNUSED_S
    for entry in list(os.scandir(folder)):
        try:
            if entry.stat(follow_symlinks=False).st_mtime > limit:
                continue
            if entry.name.endswith(_LOCK):
                _remove_if_free(entry.path[: -len(_LOCK)])
            elif entry.name.startswith((_REMOVED, tempfile.gettempprefix())):
                shutil.rmtree(entry.path, ignore_errors=True)
        except FileNotFoundError:
            # Another process removes it.
            continue
