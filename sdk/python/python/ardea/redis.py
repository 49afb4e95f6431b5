"""Redis: commands for each record.

>>> import ardea as a
>>> a.redis.write("redis://localhost", a.redis.hset(a.lit("counts"), "word", "count"))
redis.write(HSET)
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .errors import invalid
from .messages import ColumnLike, SystemSink, column, policy


class Command:
    """A command with its arguments, for each record."""

    def __init__(self, name: str, arguments: Tuple[ColumnLike, ...]) -> None:
        self._name = name
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"command({self._name!r}, ..)"

    def name(self) -> str:
        """Returns the name of the command."""
        return self._name

    def tree(self) -> Dict[str, Any]:
        """Returns the command as plain data."""
        arguments = [column(argument).tree() for argument in self._arguments]
        return {"name": self._name, "arguments": arguments}


def command(name: str, *arguments: ColumnLike) -> Command:
    """Returns any command. The arguments are columns or expressions; constants are
    ``ardea.lit(..)``."""
    return Command(name, arguments)


def set(key: ColumnLike, value: ColumnLike) -> Command:  # noqa: A001
    """Sets a key to a value."""
    return Command("SET", (key, value))


def hset(key: ColumnLike, field: ColumnLike, value: ColumnLike) -> Command:
    """Sets a field of a hash to a value."""
    return Command("HSET", (key, field, value))


def incr_by(key: ColumnLike, amount: ColumnLike) -> Command:
    """Increments the number at a key."""
    return Command("INCRBY", (key, amount))


def hincr_by(key: ColumnLike, field: ColumnLike, amount: ColumnLike) -> Command:
    """Increments the number in a field of a hash."""
    return Command("HINCRBY", (key, field, amount))


def zadd(key: ColumnLike, score: ColumnLike, member: ColumnLike) -> Command:
    """Sets the score of a member of a sorted set."""
    return Command("ZADD", (key, score, member))


def delete(key: ColumnLike) -> Command:
    """Deletes a key."""
    return Command("DEL", (key,))


def write(
    url: str,
    *commands: Command,
    idempotent: bool = False,
    exactly_once: bool = False,
    hash_tag: Optional[str] = None,
    hold_at_most: Optional[int] = None,
    parallelism: Optional[int] = None,
    authority: Optional[str] = None,
    certificate: Optional[Tuple[str, str]] = None,
    sentinel_login: Optional[Tuple[Optional[str], str]] = None,
    on_error: str = "dead_letter",
) -> SystemSink:
    """Returns a sink that sends commands for each record.

    ``idempotent`` declares that all commands may be repeated. With ``exactly_once`` the commands of
    an epoch run in one transaction at its commit; a cluster then needs ``hash_tag``. ``authority``,
    ``certificate`` (a certificate and its key) and ``sentinel_login`` (user and password) are those
    of the sink in Rust. A record with a null argument is a bad record.
    """
    if not commands:
        raise invalid("a Redis sink has no command", 'give one, as redis.set("key", "value")')
    plan = {
        "url": url,
        "commands": [command.tree() for command in commands],
        "idempotent": idempotent,
        "exactly_once": exactly_once,
        "hash_tag": hash_tag,
        "hold_at_most": hold_at_most,
        "parallelism": parallelism,
        "authority": authority,
        "certificate": certificate,
        "sentinel_login": sentinel_login,
        "on_error": policy(on_error),
    }
    called = ", ".join(command.name() for command in commands)
    return SystemSink("redis", plan, f"redis.write({called})")
