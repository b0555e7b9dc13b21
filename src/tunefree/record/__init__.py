"""A run is one SQLite file."""

from tunefree.record.file import SERVER, Line, Record, Row, held

__all__ = ["SERVER", "Line", "Record", "Row", "held"]
