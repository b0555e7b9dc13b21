"""How samples are split across clients.

Every rule is seeded and gives each sample to one client; all cover the whole set, except
`beta_literal`, which must drop samples. Rules by label decide a client-by-class count matrix;
`assign` then fills it with shuffled samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunefree.core import Generator, stream
from tunefree.data.samples import Index, Partition, starts_of
from tunefree.errors import ConfigError, refuses_unknown, unknown

MIN_SIZE = 10  # samples that every client gets at least, if there are enough
REDRAWS = 1000
DRAWN_SHARES = 10_000_000  # fewer redraws if N x classes is so large that they take long

Shares = NDArray[np.float64]


@refuses_unknown
def iid(y: ArrayLike, clients: int, seed: int = 0) -> Partition:
    """A random permutation in near-equal parts.

    Args:
        y: The targets of all samples, of any kind.
        clients: N.
        seed: The same seed gives the same partition.

    >>> [len(part) for part in iid([0] * 10, clients=3)]
    [4, 3, 3]
    """
    n = enough_for(y, clients)
    return cut(near_equal(n, clients), stream(seed, "partition"))


@refuses_unknown
def dirichlet(
    y: ArrayLike, clients: int, alpha: float, seed: int = 0, min_size: int = MIN_SIZE
) -> Partition:
    """Dirichlet by class: each class is cut among the clients in proportions drawn from Dir(alpha).

    A draw that leaves a client with fewer than `min_size` samples is redrawn whole, at most 1000
    times; after that the largest clients give samples to the smallest.

    Args:
        y: The labels of all samples.
        clients: N.
        alpha: The smaller, the more heterogeneous the clients.
        seed: The same seed gives the same partition.
        min_size: Samples that every client gets at least, if there are enough.

    >>> parts = dirichlet([0, 1] * 500, clients=10, alpha=0.5)
    >>> int(parts.sizes.sum()), bool(parts.sizes.min() >= 10)
    (1000, True)
    """
    alpha = positive("alpha", alpha)
    rng = stream(seed, "partition")
    labels, totals = classes_for("dirichlet", y, clients)
    enough = min(min_size, len(labels) // clients)
    for _ in range(max(1, min(REDRAWS, DRAWN_SHARES // (clients * len(totals))))):
        counts = cut_classes(totals, rng.dirichlet(np.full(clients, alpha), size=len(totals)))
        if counts.sum(axis=1).min() >= enough:
            break
    return assign(labels, counts, rng, enough)


@refuses_unknown
def dirichlet_equal(y: ArrayLike, clients: int, alpha: float, seed: int = 0) -> Partition:
    """Dirichlet by client: near-equal sizes, each client's class shares drawn from Dir(alpha).

    Clients fill up in random order; when a class is used up, a client's remaining shares are scaled
    to one, so the last clients take the rest.

    Args:
        y: The labels of all samples.
        clients: N.
        alpha: The smaller, the more heterogeneous the clients.
        seed: The same seed gives the same partition.

    >>> dirichlet_equal([0, 1, 2, 3] * 25, clients=5, alpha=0.1).sizes.tolist()
    [20, 20, 20, 20, 20]
    """
    alpha = positive("alpha", alpha)
    rng = stream(seed, "partition")
    labels, totals = classes_for("dirichlet-equal", y, clients)
    sizes, left = near_equal(len(labels), clients), totals.copy()
    counts = np.zeros((clients, len(totals)), dtype=np.int64)
    for client in rng.permutation(clients):
        wish = rng.dirichlet(np.full(len(totals), alpha))
        while missing := sizes[client] - counts[client].sum():
            shares = np.where(left > 0, wish, 0.0)
            if shares.sum() < 1e-12:
                shares = left.astype(float)
            got = np.minimum(rng.multinomial(missing, shares / shares.sum()), left)
            counts[client] += got
            left -= got
    return assign(labels, counts, rng)


@refuses_unknown
def beta(y: ArrayLike, clients: int, a: float, b: float, seed: int = 0) -> Partition:
    """Two classes in near-equal sizes: client i's share of one class is drawn from Beta(a, b).

    For a random half of the clients that class is 0, for the others 1, which keeps balanced data
    balanced. So that every sample has a client, all shares then move by one common amount on the
    logit scale; the more clients, the smaller the move.

    Args:
        y: The labels of all samples.
        clients: N.
        a: The first parameter of the Beta distribution.
        b: The second parameter.
        seed: The same seed gives the same partition.

    >>> beta([0, 1] * 50, clients=4, a=2, b=5).sizes.tolist()
    [25, 25, 25, 25]
    """
    labels, totals, share, rng = binary_draw("beta", y, clients, a, b, seed)
    flipped = rng.permutation(clients) < clients // 2
    share = np.where(flipped, 1 - share, share)
    sizes = near_equal(len(labels), clients)
    logit = np.log(share) - np.log1p(-share)
    low, high = -100.0, 100.0
    for _ in range(100):  # bisection on an increasing function
        middle = (low + high) / 2
        ones = sizes / (1 + np.exp(-(logit + middle)))
        low, high = (middle, high) if ones.sum() < totals[1] else (low, middle)
    first = whole_numbers(ones, int(totals[1]), sizes)
    return assign(labels, np.stack([sizes - first, first], axis=1), rng)


@refuses_unknown
def beta_literal(y: ArrayLike, clients: int, a: float, b: float, seed: int = 0) -> Partition:
    """Two classes in equal sizes: client i's share of class 1 is drawn from Beta(a, b), as it is.

    Where the drawn shares ask for more of one class than there is, all clients are made smaller
    and the rest of the data is dropped: with Beta(2, 5) and balanced data, about 30 %.

    Args:
        y: The labels of all samples.
        clients: N.
        a: The first parameter of the Beta distribution.
        b: The second parameter.
        seed: The same seed gives the same partition.

    >>> parts = beta_literal([0, 1] * 500, clients=10, a=2, b=5)
    >>> bool(parts.sizes.sum() < 1000), len(set(parts.sizes.tolist()))
    (True, 1)
    """
    labels, totals, share, rng = binary_draw("beta-literal", y, clients, a, b, seed)
    ones = share.sum()
    size = int(min(totals[1] / ones, totals[0] / (clients - ones), len(labels) // clients))
    while size > 0:
        first = np.rint(size * share).astype(np.int64)
        if first.sum() <= totals[1] and clients * size - first.sum() <= totals[0]:
            return assign(labels, np.stack([size - first, first], axis=1), rng)
        size -= 1
    raise refused(
        f"beta-literal:{a:g},{b:g}",
        f"leaves {clients} clients without a sample",
        "lower {clients} or use 'beta'",
    )


@refuses_unknown
def beta_split(y: ArrayLike, clients: int, a: float, b: float, seed: int = 0) -> Partition:
    """Two classes, each cut among the clients in proportion to weights drawn from Beta(a, b).

    Args:
        y: The labels of all samples.
        clients: N.
        a: The first parameter of the Beta distribution.
        b: The second parameter.
        seed: The same seed gives the same partition.

    >>> int(beta_split([0, 1] * 500, clients=10, a=2, b=5).sizes.sum())
    1000
    """
    labels, totals, weights, rng = binary_draw("beta-split", y, clients, a, b, seed, classes=2)
    counts = cut_classes(totals, weights / weights.sum(axis=1, keepdims=True))
    return assign(labels, counts, rng, min(MIN_SIZE, len(labels) // clients))


@refuses_unknown
def quantity(y: ArrayLike, clients: int, alpha: float, seed: int = 0) -> Partition:
    """Random samples in unequal amounts: sizes in proportions drawn from Dir(alpha).

    Args:
        y: The targets of all samples, of any kind.
        clients: N.
        alpha: The smaller, the more unequal the sizes.
        seed: The same seed gives the same partition.

    >>> parts = quantity([0] * 1000, clients=10, alpha=0.5)
    >>> int(parts.sizes.sum()), bool(parts.sizes.max() > 3 * parts.sizes.min())
    (1000, True)
    """
    alpha, n = positive("alpha", alpha), enough_for(y, clients)
    rng = stream(seed, "partition")
    return skewed(n, rng.dirichlet(np.full(clients, alpha)), rng)


@refuses_unknown
def lognormal(y: ArrayLike, clients: int, sigma: float, seed: int = 0) -> Partition:
    """Random samples in unequal amounts: the logarithms of the sizes spread by sigma.

    Args:
        y: The targets of all samples, of any kind.
        clients: N.
        sigma: The larger, the more unequal the sizes.
        seed: The same seed gives the same partition.

    >>> int(lognormal([0] * 1000, clients=10, sigma=0.3).sizes.sum())
    1000
    """
    sigma, n = positive("sigma", sigma, most=10), enough_for(y, clients)
    rng = stream(seed, "partition")
    weights = rng.lognormal(0, sigma, clients)
    return skewed(n, weights / weights.sum(), rng)


@refuses_unknown
def shards(y: ArrayLike, clients: int, per_client: float, seed: int = 0) -> Partition:
    """Samples sorted by label in near-equal shards, of which each client gets `per_client`.

    Args:
        y: The labels of all samples.
        clients: N.
        per_client: A whole number of shards.
        seed: The same seed gives the same partition.

    >>> shards([0, 0, 1, 1, 2, 2, 3, 3], clients=2, per_client=2).sizes.tolist()
    [4, 4]
    """
    if per_client < 1 or per_client != int(per_client):
        raise refused(
            f"shards:{per_client:g}",
            "must be a whole number of shards per client, such as 'shards:2'",
        )
    total = clients * int(per_client)
    labels, _ = classes_for("shards", y, clients)
    if total > len(labels):
        raise refused(
            f"shards:{per_client:g}",
            f"needs {total} shards for {clients} clients, but there are {len(labels)} samples",
            "lower the number of shards or {clients}",
        )
    rng = stream(seed, "partition")
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    holders = rng.permutation(np.repeat(np.arange(clients), int(per_client)))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[by_label] = np.repeat(holders, near_equal(len(labels), total))
    return Partition.by_owner(owner, clients)


@refuses_unknown
def natural(groups: ArrayLike, clients: int, seed: int = 0) -> Partition:
    """The clients that the data itself names, in the order of their names.

    Args:
        groups: The client of each sample.
        clients: How many clients there are.
        seed: Unused; all rules have one.

    >>> [part.tolist() for part in natural(["north", "south", "north"], clients=2)]
    [[0, 2], [1]]
    """
    names, owner = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) != clients:
        raise refused(
            "natural",
            f"has {len(names)} clients in this data, but {{clients}} = {clients}",
            f"set {{clients}} to {len(names)}",
        )
    return Partition.by_owner(owner.astype(np.int64), clients)


def assign(labels: Index, counts: Index, rng: Generator, enough: int = 0) -> Partition:
    """Shuffled samples in the numbers of a client-by-class matrix, then evened out."""
    clients, classes = counts.shape
    owner = np.full(len(labels), -1, dtype=np.int64)
    shuffled = rng.permutation(len(labels))
    by_label = np.split(
        shuffled[np.argsort(labels[shuffled], kind="stable")],
        np.cumsum(np.bincount(labels, minlength=classes))[:-1],
    )
    for members, column in zip(by_label, counts.T, strict=True):
        owner[members[: column.sum()]] = np.repeat(np.arange(clients), column)
    return Partition.by_owner(even_out(owner, clients, enough, rng), clients)


def even_out(owner: Index, clients: int, enough: int, rng: Generator) -> Index:
    """The owners after random samples have moved from the largest clients to the smallest."""
    sizes = np.bincount(owner[owner >= 0], minlength=clients)
    wanted = even_sizes(sizes, enough)
    if (wanted == sizes).all():
        return owner
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    holder = owner[order]
    rank = np.arange(len(order)) - starts_of(sizes)[holder]
    result = owner.copy()
    result[order[rank >= wanted[holder]]] = np.repeat(
        np.arange(clients), np.maximum(wanted - sizes, 0)
    )
    return result


def even_sizes(sizes: Index, enough: int) -> Index:
    """The sizes after levelling the largest until nobody has fewer than `enough`.

    >>> even_sizes(np.array([0, 9, 5, 4]), enough=3).tolist()
    [3, 6, 5, 4]
    """
    missing = int(np.maximum(enough - sizes, 0).sum())
    if not missing:
        return sizes
    low, high = enough, int(sizes.max())
    while low < high:  # the highest level with enough samples above it
        level = (low + high + 1) // 2
        if np.maximum(sizes - level, 0).sum() >= missing:
            low = level
        else:
            high = level - 1
    result = np.clip(sizes, enough, low)
    spare = int(np.maximum(sizes - low, 0).sum()) - missing
    result[np.flatnonzero(sizes > low)[:spare]] += 1
    return result


def cut(sizes: Index, rng: Generator) -> Partition:
    """Random parts of these sizes."""
    owner = np.empty(int(sizes.sum()), dtype=np.int64)
    owner[rng.permutation(len(owner))] = np.repeat(np.arange(len(sizes)), sizes)
    return Partition.by_owner(owner, len(sizes))


def skewed(n: int, shares: Shares, rng: Generator) -> Partition:
    """Random parts in these proportions, nobody below the minimum size."""
    sizes = cut_classes(np.array([n]), shares[None])[:, 0]
    return cut(even_sizes(sizes, min(MIN_SIZE, n // len(shares))), rng)


def cut_classes(totals: Index, shares: Shares) -> Index:
    """The client-by-class counts when each class is cut at its cumulative shares."""
    ends = (np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
    ends[:, -1] = totals
    return np.diff(np.minimum(ends, totals[:, None]), axis=1, prepend=0).T


def near_equal(n: int, parts: int) -> Index:
    """Sizes that differ by at most one and sum to n."""
    return np.full(parts, n // parts) + (np.arange(parts) < n % parts)


def whole_numbers(values: Shares, total: int, most: Index) -> Index:
    """Whole numbers near these values that sum to `total`, the largest fractions rounded up."""
    floor = np.minimum(values.astype(np.int64), most)
    room = np.flatnonzero(floor < most)
    order = room[np.argsort((floor - values)[room], kind="stable")]
    floor[order[: total - floor.sum()]] += 1
    return floor


def binary_draw(
    rule: str, y: ArrayLike, clients: int, a: float, b: float, seed: int, classes: int = 1
) -> tuple[Index, Index, Shares, Generator]:
    """Labels, class totals, Beta draws strictly between 0 and 1, and the stream they came from."""
    a, b = positive("a", a), positive("b", b)
    labels, totals = classes_for(rule, y, clients)
    if len(totals) != 2:
        raise refused(
            rule,
            f"needs data with two classes, but these have {len(totals)}",
            "use 'dirichlet' or 'dirichlet-equal'",
        )
    rng = stream(seed, "partition")
    draws = np.clip(rng.beta(a, b, (classes, clients)), 1e-9, 1 - 1e-9)
    return labels, totals, draws if classes > 1 else draws[0], rng


def classes_for(rule: str, y: ArrayLike, clients: int) -> tuple[Index, Index]:
    """The labels numbered 0, 1, ... and how many samples each has."""
    labels = np.asarray(y)
    if labels.ndim != 1 or not (np.issubdtype(labels.dtype, np.integer) or labels.dtype == bool):
        raise refused(
            rule,
            "splits by class, but these targets are not class labels",
            "use 'iid', 'quantity' or 'natural'",
        )
    enough_for(y, clients)
    _, numbered = np.unique(labels, return_inverse=True)
    return numbered.astype(np.int64), np.bincount(numbered)


def enough_for(y: ArrayLike, clients: int) -> int:
    """The number of samples; refuse fewer samples than clients."""
    n = len(np.asarray(y))
    if clients < 1:
        raise ConfigError("must be at least 1", setting="clients", value=clients)
    if n < clients:
        raise ConfigError(
            f"{n} samples cannot be split across {clients} clients",
            "lower {clients} to at most one per sample",
        )
    return n


def refused(rule: str, problem: str, remedy: str = "") -> ConfigError:
    return ConfigError(problem, remedy, setting="partition", value=rule)


def positive(name: str, value: float, most: float = 1e6) -> float:
    """The value given, after checking its range."""
    if not 1e-6 <= value <= most:
        raise ConfigError(
            f"partition {name} = {value:g} must be a positive number, from 0.000001 to {most:g}"
        )
    return value


RULES: Mapping[str, Callable[..., Partition]] = {  # how a rule is written -> the rule
    "iid": iid,
    "dirichlet:0.1": dirichlet,
    "dirichlet-equal:0.1": dirichlet_equal,
    "beta:2,5": beta,
    "beta-literal:2,5": beta_literal,
    "beta-split:2,5": beta_split,
    "quantity:0.5": quantity,
    "lognormal:0.3": lognormal,
    "shards:2": shards,
    "natural": natural,
}


def from_spec(
    spec: str, y: ArrayLike, clients: int, seed: int, groups: ArrayLike | None = None
) -> Partition:
    """The partition that a setting such as `iid` or `dirichlet:0.1` describes.

    >>> from_spec("shards:2", [0, 0, 1, 1, 2, 2, 3, 3], clients=4, seed=0).sizes.tolist()
    [2, 2, 2, 2]
    """
    name, _, tail = spec.partition(":")
    examples = {example.partition(":")[0]: example for example in RULES}
    if name not in examples:
        raise unknown("partition", name, examples)
    example = examples[name]
    try:
        numbers = [float(number) for number in tail.split(",")] if tail else []
    except ValueError:
        problem = "contains something that is not a number"
        raise refused(spec, problem, f"write it like {example!r}") from None
    if len(numbers) != len(re.findall(r"[\d.]+", example)):
        raise refused(spec, f"has {len(numbers)} numbers", f"write it like {example!r}")
    if name != "natural":
        return RULES[example](y, clients, *numbers, seed=seed)
    if groups is None:
        raise refused(
            name,
            "needs data that names its clients, and this data set does not",
            "use another rule, such as 'dirichlet:0.1'",
        )
    return natural(groups, clients)
