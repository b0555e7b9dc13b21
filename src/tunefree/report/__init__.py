"""Run files -> methods -> one HTML page or figures; starts fast because it never needs torch."""

from tunefree.report.sweeps import width

__all__ = ["width"]
