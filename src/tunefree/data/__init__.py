"""Data sets by name, samples, and how they are split across clients."""

from tunefree.core import stream as stream
from tunefree.data import partition as partition
from tunefree.data.samples import Dataset as Dataset
from tunefree.data.samples import Federation as Federation
from tunefree.data.samples import Images as Images
from tunefree.data.samples import Partition as Partition
from tunefree.data.samples import Samples as Samples
from tunefree.data.sources import Source as Source
from tunefree.data.sources import describe as describe
from tunefree.data.sources import load as load
