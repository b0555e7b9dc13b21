"""What crosses the wire, and what it costs."""

from tunefree.wire.message import bits

__all__ = ["bits"]
