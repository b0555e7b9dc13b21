"""The sum is the sum of the same integers, bit for bit, whoever drops out and whenever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tests.secure.federation import RUN, Federation
from tunefree.errors import FleetError
from tunefree.secure import roster as cohorts
from tunefree.secure.arithmetic import Words, threshold
from tunefree.secure.messages import Turn
from tunefree.secure.server import Attempt, Pool

STAGES = ("join", "upload", "agree", "open")


def played(federation: Federation, attempt: Attempt, dropped: dict[str, set[int]]) -> Words:
    federation.join(attempt, dropped.get("join", set()))
    federation.upload(attempt, dropped.get("upload", set()))
    federation.agree(attempt, dropped.get("agree", set()))
    federation.open_sum(attempt, dropped.get("open", set()))
    return attempt.integers()


@pytest.mark.parametrize("n", [3, 4, 7, 10])
def test_a_sum(tmp_path: Path, n: int) -> None:
    federation = Federation(tmp_path, n)
    attempt = federation.attempt()
    assert (federation.play(attempt) == federation.plain(federation.ids)).all()
    for k, total in enumerate(attempt.total()):
        exact = sum(values[k].astype(float) for values in federation.values.values())
        np.testing.assert_allclose(total, exact, atol=n * n * (k + 1) / 2**31)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("late", [False, True])
def test_drop_outs_at_one_stage(tmp_path: Path, stage: str, lost: int, late: bool) -> None:
    """Of 10 clients, 3 are the most that may be lost; the first ones or the last ones."""
    federation = Federation(tmp_path, 10)
    gone = set(federation.ids[-lost:] if late else federation.ids[:lost])
    attempt = federation.attempt()
    total = played(federation, attempt, {stage: gone})
    survivors = set(federation.ids) - (gone if stage in ("join", "upload") else set())
    assert set(attempt.survivors) == survivors
    assert (total == federation.plain(survivors)).all()


def test_a_drop_out_at_every_stage(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 10)
    one, two, three = federation.ids[2], federation.ids[5], federation.ids[9]
    attempt = federation.attempt()
    total = played(
        federation, attempt, {"join": {one}, "upload": {two}, "agree": {three}, "open": {three}}
    )
    assert (total == federation.plain(set(federation.ids) - {one, two})).all()


@pytest.mark.parametrize("stage", STAGES)
def test_one_too_many_repeats_the_round(tmp_path: Path, stage: str) -> None:
    federation = Federation(tmp_path, 10)
    gone = set(federation.ids[:4])
    attempt = federation.attempt()
    with pytest.raises(FleetError, match="6 .* 7"):
        played(federation, attempt, {stage: gone})
    again = federation.attempt(attempt=1, of=federation.ids[4:])
    if stage == "open":  # they have opened a sum of this round
        again = federation.attempt(round=2, of=federation.ids[4:])
    assert (federation.play(again) == federation.plain(federation.ids[4:])).all()


def test_rounds_follow_one_another_with_other_cohorts(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 6)
    for round, cohort in enumerate((slice(0, 4), slice(2, 6), slice(0, 6), slice(1, 5))):
        ids = federation.ids[cohort]
        attempt = federation.attempt(round, of=ids)
        assert (federation.play(attempt) == federation.plain(ids)).all()


def test_repeated_attempts_use_other_pads(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 4)
    uploads = []
    for k in range(3):
        attempt = federation.attempt(attempt=k)
        federation.join(attempt)
        federation.upload(attempt)
        uploads.append(attempt._words.copy())
    federation.agree(attempt)
    federation.open_sum(attempt)
    assert (attempt.integers() == federation.plain(federation.ids)).all()
    assert (uploads[0] != uploads[1]).all()
    assert (uploads[1] != uploads[2]).all()


def test_a_server_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """Also when the nodes have signed and opened already: they give the same answer."""
    federation = Federation(tmp_path, 5)
    attempt = federation.attempt()
    federation.join(attempt)
    federation.upload(attempt, without={federation.ids[0]})
    attempt.agree()
    saved = attempt.saved()
    federation.agree(attempt)
    federation.open_sum(attempt)
    expected = attempt.integers()
    for i in federation.ids:
        federation.open(i)
    restored = Attempt.restored(federation.roster, saved)
    federation.agree(restored)
    federation.open_sum(restored)
    assert (restored.integers() == expected).all()
    assert (expected == federation.plain(federation.ids[1:])).all()


def test_a_sparse_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohorts, "DEGREE", 8)
    federation = Federation(tmp_path, 16)
    attempt = federation.attempt()
    groups = {i: set(attempt.cohort.group(i)) for i in federation.ids}
    assert {len(group) for group in groups.values()} == {9}
    for i, group in groups.items():
        assert i in group
        assert all(i in groups[j] for j in group)
    gone = federation.ids[3]
    total = played(federation, attempt, {"upload": {gone}})
    assert (total == federation.plain(set(federation.ids) - {gone})).all()
    other = federation.attempt(2)
    assert {i: set(other.cohort.group(i)) for i in federation.ids} != groups


def test_up_to_151_clients_the_graph_is_complete() -> None:
    def group_size(n: int) -> int:
        cohort = cohorts.Cohort.__new__(cohorts.Cohort)
        cohort.nodes, cohort.hash = tuple(range(n)), b"h" * 32
        return len(set(cohort.group(n - 1)))

    assert [group_size(n) for n in (3, 150, 151, 152, 153, 1000)] == [3, 150, 151, 151, 151, 151]
    assert threshold(151) == 101


def test_a_node_that_lost_its_file_takes_part_again(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 4)
    federation.play(federation.attempt())
    i = federation.ids[0]
    federation.nodes[i].close()
    (tmp_path / f"{i}.sqlite").unlink()
    federation.nodes[i] = federation.open(i)
    pool = federation.pool
    while pool.left(i):
        pool.take([i])
    pool.receive(i, federation.nodes[i].prekeys(RUN, 2))
    attempt = federation.attempt(2)
    assert (federation.play(attempt) == federation.plain(federation.ids)).all()


def test_two_runs_do_not_disturb_each_other(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3)
    first = federation.attempt()
    federation.join(first)
    pool = Pool(federation.roster, "run-2")
    for i, node in federation.nodes.items():
        pool.receive(i, node.prekeys("run-2", 1))
    keys = pool.take(federation.ids)
    second = Attempt.of(federation.roster, Turn("run-2", 0, 0), federation.terms, keys)
    federation.join(second)
    federation.upload(first)
    federation.upload(second)
    for attempt in (second, first):
        federation.agree(attempt)
        federation.open_sum(attempt)
        assert (attempt.integers() == federation.plain(federation.ids)).all()
