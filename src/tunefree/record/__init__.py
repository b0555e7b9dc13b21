"""A run is one SQLite file."""

from tunefree.record.facts import Facts
from tunefree.record.file import SERVER, Record, summarise
from tunefree.record.lock import is_locked, this_process
from tunefree.record.rows import Line, Row, Rows
from tunefree.record.summary import Summary

__all__ = [
    "SERVER",
    "Facts",
    "Line",
    "Record",
    "Row",
    "Rows",
    "Summary",
    "is_locked",
    "summarise",
    "this_process",
]
