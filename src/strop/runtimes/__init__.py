"""Runtimes: an artifact becomes a session, which can be called. The format chooses the runtime."""

from strop.runtimes.session import Session, open_session

__all__ = ["Session", "open_session"]
