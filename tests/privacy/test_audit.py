"""The audit: it believes our mechanism and finds broken ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tunefree.cli import main
from tunefree.core import Reply, System, stream
from tunefree.privacy.accountant import Gaussian
from tunefree.privacy.audit import (
    Finding,
    Mechanism,
    Seen,
    Up,
    audit,
    audit_records,
    least_rate,
    lower_bound,
    of_records,
    ours,
)
from tunefree.privacy.calls import Calls
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.promise import Guarantee, Privacy
from tunefree.privacy.records import of_calls
from tunefree.privacy.release import NoisyMean, Sum, deployed, simulated

pytest.importorskip("dp_accounting")
SYS, PROMISE = System(N=6, S=3, K=1, T=2), Privacy(epsilon=4)
LIKE = torch.zeros(1)


def findings(
    broken: Callable[[System, Guarantee], Mechanism], promise: Privacy = PROMISE
) -> list[Finding]:
    guarantee = promise.in_a(SYS)
    return audit(broken(SYS, guarantee), SYS, guarantee, runs=500)


@pytest.mark.parametrize("promise", [PROMISE, Privacy(1.0, participations=2)])
def test_our_mechanism_keeps_its_promise(promise: Privacy) -> None:
    assert all(finding.holds for finding in findings(ours, promise))


@pytest.mark.parametrize(("size", "holds"), [(1.0, True), (0.5, False)])
def test_the_ledger_and_noise_on_integers_keep_it_too(size: float, holds: bool) -> None:
    """And half of that noise would be found. Its words have a seed: the audit's doubt is 5 %."""

    def sums(seed: int, sigma: float) -> Sum:
        ledger = Ledger(sqlite3.connect(":memory:", isolation_level=None), 100.0, 1e-5)
        rng = stream(seed, "words")

        def words(count: int) -> NDArray[np.uint64]:
            return rng.integers(2**64, size=count, dtype=np.uint64)

        return deployed(ledger, Gaussian(size * sigma), words)

    found = findings(
        lambda sys, guarantee: ours(sys, guarantee, sums), Privacy(4.0, participations=2)
    )
    assert all(finding.holds for finding in found) == holds


def test_the_attack_is_not_idle() -> None:
    assert max(finding.proved for finding in findings(ours, Privacy(20.0, participations=2))) > 0.5


def halved(sys: System, guarantee: Guarantee) -> Mechanism:
    release = guarantee.release
    return ours(sys, guarantee._replace(release=release._replace(sigma=release.sigma / 2)))


def fixed_cohort(sys: System, guarantee: Guarantee) -> Mechanism:
    def run(others: float, canary: bool, seed: int) -> Iterator[Seen]:
        sigma = guarantee.release.sigma
        mean = NoisyMean(simulated(seed, sigma), sigma, sys.S, bound=1.0)
        ups = [Up(LIKE + others)] * (sys.N - 1) + [Up(LIKE + 1)]
        for t in range(sys.T):
            here = stream(seed, "cohort", t).choice(sys.N - 1 + canary, sys.S, replace=False)
            yield Seen(mean(t, Up, [Reply(int(i), 1, 0, ups[i]) for i in here], LIKE).up.u)

    return run


def forgotten_metric(sys: System, guarantee: Guarantee) -> Mechanism:
    inner = ours(sys, guarantee)

    def run(others: float, canary: bool, seed: int) -> Iterator[Seen]:
        for t, seen in enumerate(inner(others, canary, seed)):
            coins = stream(seed, "coins", t).random(sys.N) < guarantee.release.q
            loss = 0.3 + 0.5 * (canary and coins[-1])
            yield seen._replace(metrics={"training loss": loss})

    return run


@pytest.mark.parametrize("broken", [halved, fixed_cohort, forgotten_metric])
def test_what_is_broken_is_found(broken: Callable[[System, Guarantee], Mechanism]) -> None:
    found = findings(broken)
    assert not all(finding.holds for finding in found)
    if broken is forgotten_metric:
        worst = max(found, key=lambda finding: finding.proved - finding.claimed)
        assert worst.by.startswith("training loss")


def test_a_lower_bound_is_rarely_too_high() -> None:
    rng = stream(0, "audit")
    too_high = [
        lower_bound(rng.normal(0, 1, 400), rng.normal(0, 1, 400), 1e-5, 0.05) > 0
        for _ in range(200)
    ]
    assert np.mean(too_high) < 0.1


def test_a_lower_bound_sees_every_direction() -> None:
    rng = stream(0, "audit")
    x, y = rng.normal(0, 1, 1000), rng.normal(3, 1, 1000)
    for out, inside in ((x, y), (y, x), (-x, -y), (-y, -x)):
        assert 2 < lower_bound(out, inside, 1e-5, 0.05) < 6


def test_the_interval_is_clopper_and_pearsons() -> None:
    assert least_rate(0, 10, 0.05) == 0
    assert least_rate(10, 10, 0.05) == pytest.approx(0.05 ** (1 / 10))
    p = least_rate(3, 10, 0.05)  # P(at least 3 of 10 at p) = 0.05
    tail = sum(n * p**k * (1 - p) ** (10 - k) for k, n in ((0, 1), (1, 10), (2, 45)))
    assert 1 - tail == pytest.approx(0.05)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = "privacy audit --clients 4 --per-round 2 --rounds 1 --runs 80".split()  # noqa: SIM905
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("the promise holds\n")
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"]
    assert [finding["delta"] for finding in found["findings"]] == [1e-5, 0.01, 0.1]


RECORDS = of_calls(Privacy(4, "record"), 6, 3, 2, (Calls((1,)),))


def test_the_oracle_of_records_keeps_its_promise() -> None:
    assert all(finding.holds for finding in audit_records(RECORDS, runs=400))


def test_half_the_noise_on_records_is_found() -> None:
    mechanism = of_records(RECORDS._replace(sigma=RECORDS.sigma / 2))
    release = Gaussian(RECORDS.sigma, RECORDS.q)
    claimed = Guarantee(RECORDS.epsilon, RECORDS.delta, release, RECORDS.limit)
    found = audit(mechanism, System(N=6, S=3, K=1, T=2), claimed, runs=400)
    assert not all(finding.holds for finding in found)


def test_the_command_for_records(capsys: pytest.CaptureFixture[str]) -> None:
    words = "privacy audit --unit record --records 6 --batch-size 3 --rounds 1 --runs 80"
    assert main(words.split()) == 0
    assert capsys.readouterr().out.endswith("the promise holds\n")
