"""What a simulation counts for a secure sum is what one sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.secure.federation import DOWN, Federation
from tunefree.secure.sizes import beside


@pytest.mark.parametrize("n", [3, 6])
def test_every_byte_is_counted(n: int, tmp_path: Path) -> None:
    federation = Federation(tmp_path, n)
    i, run = federation.ids[0], "0" * 16
    batch = federation.nodes[i].prekeys(run, 1)
    attempt = federation.attempt()
    run_more = len(run) - len(attempt.cohort.turn.run)  # in each of the eight other messages
    up, down = len(batch), len(attempt.invite)
    for each, node in federation.nodes.items():
        reply = node.join(attempt.invite)
        up += len(reply) * (each == i)
        attempt.receive(each, reply)
    requests = attempt.deliver(DOWN)
    down += len(requests[i])
    for each, node in federation.nodes.items():
        reply = node.upload(requests[each], DOWN, federation.values[each])
        up += (len(reply) - 4 * sum(federation.terms.counts)) * (each == i)
        attempt.receive(each, reply)
    for step in ("agree", "open"):
        request = getattr(attempt, step)()
        down += len(request)
        for each, node in federation.nodes.items():
            reply = getattr(node, step)(request)
            up += len(reply) * (each == i)
            attempt.receive(each, reply)
    fields = len(federation.terms.counts)
    expected = 3, 8 * (down + 4 * run_more), 8 * (up + 4 * run_more)
    assert beside(n, n, fields) == expected
