"""Workload A or B in tunefree, recorded and on the pool; rounds as each input line says."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import sizes

from tunefree_evidence.speed.measure import ours
from tunefree_evidence.speed.workloads import workload

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        algorithm = sys.argv[2] if len(sys.argv) > 2 else "padamfed"
        sizes.take_turns(ours(workload(sys.argv[1]), "pool", Path(folder), algorithm))
