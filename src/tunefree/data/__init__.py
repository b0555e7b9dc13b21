"""Data sets by name, samples, and how they are split across clients."""

from tunefree.core import stream
from tunefree.data import partition
from tunefree.data.samples import Dataset, Federation, Images, Partition, Samples
from tunefree.data.sources import Source, describe, load

__all__ = [
    "Dataset",
    "Federation",
    "Images",
    "Partition",
    "Samples",
    "Source",
    "describe",
    "load",
    "partition",
    "stream",
]
