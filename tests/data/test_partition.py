"""Every rule is seeded, disjoint and covering, and does what its name says."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefree.core import stream
from tunefree.data import partition
from tunefree.data.partition import RULES, from_spec
from tunefree.data.samples import Index, Partition, heterogeneity
from tunefree.errors import ConfigError

CLASS_SPECS = [
    *("iid", "dirichlet:0.1", "dirichlet:0.000001", "dirichlet:100", "dirichlet-equal:0.1"),
    *("dirichlet-equal:0.000001", "quantity:0.5", "lognormal:0.3", "lognormal:10"),
]
BINARY_SPECS = ["beta:2,5", "beta:0.01,0.01", "beta:1000000,0.000001", "beta-split:2,5"]
EQUAL = ("iid", "dirichlet-equal", "beta", "shards")

federations = st.integers(1, 12).flatmap(
    lambda clients: st.tuples(st.just(clients), st.integers(clients, 300), st.integers(0, 5))
)


def digits(n: int, classes: int = 10) -> Index:
    return stream(0, "test labels").integers(0, classes, n)


def assert_covers(parts: Partition, n: int, clients: int) -> None:
    assert len(parts) == clients
    assert sorted(parts.order.tolist()) == list(range(n))
    assert parts.sizes.sum() == n
    assert parts.sizes.min() >= 1
    np.testing.assert_array_equal(np.concatenate(list(parts)), parts.order)


@pytest.mark.parametrize("spec", CLASS_SPECS)
@settings(deadline=None, max_examples=50)
@given(federations)
def test_disjoint_and_covering(spec: str, federation: tuple[int, int, int]) -> None:
    clients, n, seed = federation
    y = digits(n)
    parts = from_spec(spec, y, clients, seed)
    assert_covers(parts, n, clients)
    assert parts.sizes.min() >= min(10, n // clients) or spec.startswith("iid")
    if spec.split(":")[0] in EQUAL:
        assert np.ptp(parts.sizes) <= 1
    again = from_spec(spec, y, clients, seed)
    np.testing.assert_array_equal(parts.order, again.order)
    np.testing.assert_array_equal(parts.starts, again.starts)


@pytest.mark.parametrize("spec", BINARY_SPECS)
@settings(deadline=None, max_examples=50)
@given(federations, st.floats(0.02, 0.98))
def test_binary_rules_cover_unbalanced_data_too(
    spec: str, federation: tuple[int, int, int], share: float
) -> None:
    clients, n, seed = federation
    n = max(n, 4)
    y = (np.arange(n) < max(1, min(n - 1, round(share * n)))).astype(np.int64)
    parts = from_spec(spec, y, clients, seed)
    assert_covers(parts, n, clients)
    if spec.startswith("beta:"):
        assert np.ptp(parts.sizes) <= 1


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 5), st.integers(0, 200))
def test_shards_cover(clients: int, per_client: int, seed: int, extra: int) -> None:
    n = clients * per_client + extra
    assert_covers(from_spec(f"shards:{per_client}", digits(n), clients, seed), n, clients)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(0, 12))
def test_levelling_is_what_moving_one_by_one_gives(sizes: list[int], enough: int) -> None:
    enough = min(enough, sum(sizes) // len(sizes))
    slow = sorted(sizes)
    while slow[0] < enough:
        slow[0] += 1
        slow[-1] -= 1
        slow.sort()
    fast = partition.even_sizes(np.array(sizes), enough)
    assert sorted(fast.tolist()) == slow


def test_seeds_give_other_partitions() -> None:
    y = digits(500)
    for spec in ("iid", "dirichlet:0.5", "dirichlet-equal:0.5", "quantity:1", "shards:2"):
        a, b = from_spec(spec, y, 10, 0), from_spec(spec, y, 10, 1)
        assert a.order.tolist() != b.order.tolist(), spec


def test_sorted_labels_do_not_matter_to_dirichlet() -> None:
    y = np.sort(digits(2000))
    spread = heterogeneity(from_spec("dirichlet:100", y, 10, 0), y)
    assert spread.classes_per_client == 10
    assert spread.distance < 0.1


def test_small_alpha_is_more_uneven() -> None:
    y = digits(5000)
    for name in ("dirichlet", "dirichlet-equal"):
        distance = [
            heterogeneity(from_spec(f"{name}:{alpha}", y, 20, 0), y).distance
            for alpha in (0.05, 0.5, 5, 500)
        ]
        assert distance == sorted(distance, reverse=True), name


def test_shards_give_two_classes_each() -> None:
    y = np.repeat(np.arange(10), 100)
    counts = heterogeneity(from_spec("shards:2", y, 50, 0), y).counts
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert set(counts.ravel().tolist()) <= {0, 10, 20}


def test_beta_keeps_balance_and_follows_the_drawn_shares() -> None:
    y = np.repeat([0, 1], 20_000)
    parts = from_spec("beta:2,5", y, 400, 0)
    ones = heterogeneity(parts, y).counts[:, 1] / 100
    rare = np.minimum(ones, 1 - ones)
    assert 0.2 < rare.mean() < 2 / 7 + 0.02  # Beta(2, 5) has mean 2/7; some draws exceed a half
    assert 150 < (ones < 0.5).sum() < 250


def test_beta_literal_drops_what_does_not_fit() -> None:
    y = np.repeat([0, 1], 10_000)
    parts = from_spec("beta-literal:2,5", y, 100, 0)
    assert np.ptp(parts.sizes) == 0
    assert len(np.unique(parts.order)) == len(parts.order)
    assert 0.6 < len(parts.order) / len(y) < 0.8
    counts = heterogeneity(parts, y).counts
    assert abs(counts[:, 1].sum() / counts.sum() - 2 / 7) < 0.05
    with pytest.raises(ConfigError, match="leaves 3 clients without a sample"):
        from_spec("beta-literal:2,5", np.array([1, 1, 1, 0]), 3, 0)


def test_natural_clients() -> None:
    groups = np.array(["zoe", "ann", "zoe", "bob"])
    parts = from_spec("natural", np.zeros(4), 3, 0, groups=groups)
    assert [part.tolist() for part in parts] == [[1], [3], [0, 2]]
    with pytest.raises(ConfigError, match="has 3 clients in this data, but clients = 5"):
        from_spec("natural", np.zeros(4), 5, 0, groups=groups)
    with pytest.raises(ConfigError, match="needs data that names its clients"):
        from_spec("natural", np.zeros(4), 3, 0)


@pytest.mark.parametrize(
    ("spec", "clients", "sentence"),
    [
        ("dirichelt:0.1", 5, "did you mean 'dirichlet'"),
        (
            "dirichlet:small",
            5,
            "contains something that is not a number; write it like 'dirichlet:0.1'",
        ),
        ("dirichlet", 5, "has 0 numbers; write it like 'dirichlet:0.1'"),
        ("beta:2", 5, "has 1 numbers; write it like 'beta:2,5'"),
        ("iid:3", 5, "has 1 numbers; write it like 'iid'"),
        ("dirichlet:0", 5, "alpha = 0 must be a positive number"),
        ("dirichlet:nan", 5, "alpha = nan must be a positive number"),
        ("dirichlet-equal:-1", 5, "alpha = -1 must be a positive number"),
        ("quantity:inf", 5, "alpha = inf must be a positive number"),
        ("lognormal:0", 5, "sigma = 0 must be a positive number"),
        ("beta:0,5", 5, "a = 0 must be a positive number"),
        ("beta:2,5", 5, "needs data with two classes, but these have 10"),
        ("shards:2.5", 5, "whole number of shards"),
        ("shards:0", 5, "whole number of shards"),
        ("shards:50", 5, "needs 250 shards for 5 clients, but there are 100 samples"),
        ("iid", 0, "clients = 0 must be at least 1"),
        ("dirichlet:0.1", 101, "100 samples cannot be split across 101 clients"),
    ],
)
def test_mistakes_give_a_clear_error(spec: str, clients: int, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_spec(spec, np.arange(100) % 10, clients, 0)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet-equal", "beta", "shards"])
def test_targets_that_are_no_labels_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' splits by class, but these targets are not"):
        from_spec(
            next(each for each in RULES if each.startswith(f"{name}:")), np.zeros((20, 3)), 5, 0
        )
    assert_covers(from_spec("iid", np.zeros((20, 3)), 5, 0), 20, 5)


def test_a_thousand_clients_are_quick() -> None:
    y = digits(60_000)
    for example in RULES.keys() - {"natural"}:
        labels = y % 2 if "," in example else y
        start = time.perf_counter()
        from_spec(example, labels, 1000, 0)
        assert time.perf_counter() - start < 10, example  # measured: at most 1 s


def test_heterogeneity_by_hand() -> None:
    parts = Partition([np.array([0, 1, 2, 3]), np.array([4, 5]), np.array([6, 7])])
    measure = heterogeneity(parts, np.array([0, 0, 1, 1, 0, 0, 1, 1]), classes=3)
    assert measure.counts.tolist() == [[2, 2, 0], [2, 0, 0], [0, 2, 0]]
    assert (measure.smallest, measure.median, measure.largest) == (2, 2.0, 4)
    assert measure.classes_per_client == pytest.approx(4 / 3)
    assert measure.distance == pytest.approx((0 + 0.5 + 0.5) / 3)


def test_heterogeneity_of_a_million_clients() -> None:
    n = 1_000_000
    parts = from_spec("iid", digits(n), n, 0)
    measure = heterogeneity(parts, digits(n))
    assert measure.counts.shape == (n, 10)
    assert (measure.smallest, measure.largest, measure.classes_per_client) == (1, 1, 1.0)


def test_heterogeneity_without_classes() -> None:
    parts = Partition([np.array([0, 1, 2]), np.array([3])])
    measure = heterogeneity(parts, np.zeros((4, 2)))
    assert measure.counts.tolist() == [[3], [1]]
    assert measure.distance == 0
