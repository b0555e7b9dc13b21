"""A run is one SQLite file."""

from tunefree.record.facts import Facts as Facts
from tunefree.record.file import ACK as ACK
from tunefree.record.file import BEST as BEST
from tunefree.record.file import GAUGE as GAUGE
from tunefree.record.file import SERVER as SERVER
from tunefree.record.file import Record as Record
from tunefree.record.file import summarise as summarise
from tunefree.record.lock import is_locked as is_locked
from tunefree.record.lock import this_process as this_process
from tunefree.record.summary import Line as Line
from tunefree.record.summary import Row as Row
from tunefree.record.summary import Rows as Rows
from tunefree.record.summary import Summary as Summary
from tunefree.record.summary import size as size
