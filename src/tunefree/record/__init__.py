"""A run is one SQLite file."""

from tunefree.record.facts import Facts
from tunefree.record.file import SERVER, Record, held, summarise, this_process
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
    "held",
    "summarise",
    "this_process",
]
