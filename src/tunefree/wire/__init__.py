"""What crosses the wire, what it costs, and how it is made smaller."""

from tunefree.wire.codec import decode, encode, rounded
from tunefree.wire.compressed import Compressed
from tunefree.wire.compressors import RAND_5_PERCENT, TOP_5_PERCENT, Compressor
from tunefree.wire.message import bits, value_bits
from tunefree.wire.spec import demand, from_spec

__all__ = [
    "RAND_5_PERCENT",
    "TOP_5_PERCENT",
    "Compressed",
    "Compressor",
    "bits",
    "decode",
    "demand",
    "encode",
    "from_spec",
    "rounded",
    "value_bits",
]
