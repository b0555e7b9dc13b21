"""What crosses the wire, what it costs, and how it is made smaller."""

from tunefree.wire.codec import decode as decode
from tunefree.wire.codec import encode as encode
from tunefree.wire.codec import rounded as rounded
from tunefree.wire.compressed import Compressed as Compressed
from tunefree.wire.compressors import RAND_5_PERCENT as RAND_5_PERCENT
from tunefree.wire.compressors import TOP_5_PERCENT as TOP_5_PERCENT
from tunefree.wire.compressors import Compressor as Compressor
from tunefree.wire.message import bits as bits
from tunefree.wire.message import dense as dense
from tunefree.wire.message import is_vector as is_vector
from tunefree.wire.message import value_bits as value_bits
from tunefree.wire.spec import demand as demand
from tunefree.wire.spec import from_spec as from_spec
