"""The errors that a person is meant to read: one line that says what, where and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StropError(Exception):
    """A mistake in what was asked for. Its text is one line; the command line prints it and exits with code 2."""


class StageFailure(Exception):
    """A stage could not give what was asked: it becomes a row of the study, with a status and this text.

    Args:
        status: one of `strop.artifact.STATUSES`.
        message: one line.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def nearest(word: str, words: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the known word nearest to `word`, or a list of the known words."""
    known = sorted(set(words))
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"known: {shown}" if shown else "none is known"


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """Return the first telling line of an error without colour codes, at most `limit` characters long."""
    import re

    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    text = error if isinstance(error, str) else (str(error) or type(error).__name__)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = " ".join(text.split())
    if not isinstance(error, str) and not isinstance(error, (StropError, StageFailure)):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
