"""An algorithm that only this test has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About
from tunefree.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    about: ClassVar[About] = About("Mine", "own", "us", grid={"eta": (0.1,)})
