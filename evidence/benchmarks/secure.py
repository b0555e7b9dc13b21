"""What a secure sum costs: CPU seconds of one client and of the server, and bytes, by step.

    python evidence/benchmarks/secure.py --clients 10 50 150 --numbers 10000 1000000

Everything runs in this process and on one core. One client is measured; what the others do to their
vectors is left out, since the server cannot tell, so the sums themselves are not looked at here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunefree.secure import masks, node, server
from tunefree.secure.messages import Terms, Turn
from tunefree.secure.roster import Identity, Roster

RUN, DOWN = "benchmark", b"the model"


class Costs:
    """CPU seconds and the largest message, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.bytes: dict[str, int] = defaultdict(int)

    def of(self, name: str, step: Callable[..., Any], *args: Any) -> Any:
        start = time.process_time()
        result = step(*args)
        self.seconds[name] += time.process_time() - start
        if isinstance(result, bytes):
            self.bytes[name] = max(self.bytes[name], len(result))
        return result


def measured(folder: Path, clients: int, numbers: int, dropped: int) -> Costs:
    """A round in which so many clients share, but do not upload."""
    costs = Costs()
    keys = {i: Identity(Ed25519PrivateKey.generate()) for i in range(clients)}
    roster = Roster("benchmark", {i: key.public for i, key in keys.items()})
    nodes = {i: node.Node(folder / f"{i}.sqlite", keys[i], roster, i, 3) for i in keys}
    pool = server.Pool(roster, RUN)
    for i, each in nodes.items():
        batch = (
            costs.of("client, a prekey", each.prekeys, RUN, 1) if i == 0 else each.prekeys(RUN, 1)
        )
        pool.receive(i, batch)
    terms = Terms(clients, 0.0, (numbers,), (1.0,))
    attempt = server.Attempt.of(roster, Turn(RUN, 0, 0), terms, pool.take(nodes))
    costs.bytes["server, invite"] = len(attempt.invite)
    vector = np.random.default_rng(0).uniform(-1, 1, numbers).astype(np.float32)
    words = np.zeros(numbers, np.uint32)

    def heard(step: str, i: int, ask: Callable[..., bytes], *args: Any) -> None:
        answer = costs.of(f"client, {step}", ask, *args) if i == 0 else ask(*args)
        costs.of(f"server, receives {step}", attempt.receive, i, answer)

    for i, each in nodes.items():
        heard("join", i, each.join, attempt.invite)
    requests = costs.of("server, deliver", attempt.deliver, DOWN)
    costs.bytes["server, deliver"] = len(requests[0])
    for i in range(clients - dropped):
        if i == 0:
            heard("upload", i, nodes[i].upload, requests[i], DOWN, [vector])
            continue
        with patch.object(node, "to_integers", lambda *_: words), patch.object(masks, "apply"):
            upload = nodes[i].upload(requests[i], DOWN, [vector])
        costs.of("server, receives upload", attempt.receive, i, upload)
    request = costs.of("server, agree", attempt.agree)
    for i in attempt.survivors:
        heard("agree", i, nodes[i].agree, request)
    request = costs.of("server, open", attempt.open)
    for i in attempt.survivors:
        heard("open", i, nodes[i].open, request)
    costs.of("server, sum", attempt.integers)
    for each in nodes.values():
        each.close()
    return costs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, nargs="+", default=[10, 50])
    options.add_argument("--numbers", type=int, nargs="+", default=[10_000, 1_000_000])
    options.add_argument("--dropped", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    chosen = options.parse_args()
    rows = []
    for clients in chosen.clients:
        for numbers in chosen.numbers:
            for share in chosen.dropped:
                with tempfile.TemporaryDirectory() as folder:
                    costs = measured(Path(folder), clients, numbers, int(share * clients))
                row = {"clients": clients, "numbers": numbers, "dropped": int(share * clients)}
                names = sorted({*costs.seconds, *costs.bytes})
                steps = {
                    name: [round(costs.seconds.get(name, 0.0), 5), costs.bytes.get(name, 0)]
                    for name in names
                }
                rows.append({**row, "seconds and bytes": steps})
                sys.stderr.write(f"{row}, load {os.getloadavg()[0]:.1f}\n")
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
