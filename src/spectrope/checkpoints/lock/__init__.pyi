"""Locks: what a checkpoint applies, kept in a file beside it, and compared with what it applies later."""

__all__ = ["FILE", "CheckedLock", "Lock", "Move", "check", "lock", "read_lock", "write_lock"]

from .check import check
from .checked import CheckedLock
from .files import FILE, read_lock, write_lock
from .measure import lock
from .move import Move
from .records import Lock
