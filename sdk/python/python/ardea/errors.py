"""Errors of jobs."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """A failure: what failed, why, and what to do.

    ``code`` is a stable code of the form ``ARD-102``; see ``docs/errors.md``. ``hint`` names the
    remedy, if there is one. ``step``, ``instance`` and ``record`` are the place of the failure, as
    far as it is known: the name of the step, its instance, and the position of the record on the
    input of that instance.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "ARD-101",
        hint: Optional[str] = None,
        step: Optional[str] = None,
        instance: Optional[int] = None,
        record: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.step = step
        self.instance = instance
        self.record = record

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{hint}"


class FunctionError(Error):
    """An exception of a function of the job.

    The exception itself, with its traceback, is the ``__cause__``, unless the function has a process
    of its own: then the message has its text.
    """


class RecordFailure(Exception):
    """An exception of a function on one record of a batch. Internal.

    ``row`` is the index of the record in the batch, and ``value`` the record.
    """

    def __init__(self, row: int, value: object) -> None:
        super().__init__(row)
        self.row = row
        self.value = value


def invalid(message: str, hint: Optional[str] = None) -> Error:
    """Returns the error of a job that is described wrongly."""
    return Error(message, code="ARD-101", hint=hint)
