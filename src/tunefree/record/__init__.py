"""A run is one SQLite file."""

from tunefree.record.facts import Facts
from tunefree.record.file import BEST, GAUGE, SERVER, Record, summarise
from tunefree.record.lock import is_locked, this_process
from tunefree.record.summary import Line, Row, Rows, Summary, size

__all__ = [
    "BEST",
    "GAUGE",
    "SERVER",
    "Facts",
    "Line",
    "Record",
    "Row",
    "Rows",
    "Summary",
    "is_locked",
    "size",
    "summarise",
    "this_process",
]
