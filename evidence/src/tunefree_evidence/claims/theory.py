"""The theorems on problems small enough for thousands of rounds, with the real algorithms.

Client i's F(θ; ξ) = scale · (½ Σ_j a_ij (θ_j - b_ij)² + Σ_j (1 - cos 3θ_j) / 9 + θᵀξ): a bowl, and
ripples that make f = mean of f_i non-convex; ξ ~ noise · N(0, I / d), all in double precision. What
is measured is the theorems' own quantity, the mean of ||∇f(θ^t)|| over all rounds ("mean"), or its
square, or the norm over the last tenth of the rounds ("late"), or how far a trajectory moves if the
loss is multiplied by 1000 ("shift").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import sqrt
from multiprocessing import get_context
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tunefree import Schedule, System, mean, norm
from tunefree.data import stream
from tunefree.search import MethodSpec
from tunefree.testing import Job, simulate
from tunefree_evidence.claims.verdicts import Part, Verdict, above, below, decide

RIPPLE = 3.0
TOLERANCE = 0.05  # a slope of -0.20 is still "about -1/4"
STUDENT = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # 95 %, from two seeds on
SMOOTHNESS = 2.0  # the largest curvature: 1 of a bowl and 1 of a ripple

Measure: TypeAlias = Literal["mean", "square", "late", "shift"]


class Bowls(NamedTuple):
    """The clients' functions, and where to start."""

    a: Tensor  # (N, d), curvatures
    b: Tensor  # (N, d), centres
    theta0: NDArray[np.float64]
    noise: float
    scale: float
    ripple: float
    seed: int

    def grad(self, client: int, theta: Tensor) -> Tensor:
        """∇f_i."""
        return self.scale * (self.a[client] * (theta - self.b[client]) + self._ripples(theta))

    def norms(self, thetas: Tensor) -> NDArray[np.float64]:
        """||∇f|| at each of the points, for scale = 1."""
        gradients = self.a.mean(dim=0) * thetas + self._ripples(thetas)
        lengths: NDArray[np.float64] = gradients.norm(dim=1).numpy()
        return lengths

    def _ripples(self, theta: Tensor) -> Tensor:
        return self.ripple * torch.sin(RIPPLE * theta) / RIPPLE


def bowls(
    N: int,
    seed: int,
    d: int = 8,
    noise: float = 1.0,
    spread: float = 1.0,
    scale: float = 1.0,
    ripple: float = 1.0,
) -> Bowls:
    """Clients whose optima are `spread` apart; the start is two units from the mean bowl's centre.

    That centre is 0, so a minimiser of f, however far apart the clients are.
    """
    rng = stream(seed, "bowls")
    a = torch.from_numpy(rng.uniform(0.2, 1.0, (N, d)))
    b = torch.from_numpy(spread * rng.normal(size=(N, d)) / d**0.5)
    b = b - (a * b).mean(dim=0) / a.mean(dim=0)
    away = torch.from_numpy(rng.normal(size=d))
    return Bowls(a, b, (2 * away / norm(away)).numpy(), noise, scale, ripple, seed)


class BowlOracle:
    """A client's oracle on its bowl."""

    n = 1

    def __init__(self, problem: Bowls, job: Job) -> None:
        self._problem, self._client = problem, job.client
        self.rng: np.random.Generator = stream(problem.seed, "client", *job.key)
        self.drawn = 0

    def draw(self) -> Tensor:
        self.drawn += 1
        d = len(self._problem.theta0)
        noise = self._problem.noise * self._problem.scale / d**0.5
        return torch.from_numpy(noise * self.rng.standard_normal(d))

    def grad(self, theta: Tensor, xi: Tensor) -> Tensor:
        return self._problem.grad(self._client, theta) + xi

    def loss_and_grad(self, theta: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("no theorem here is about methods that use the loss")

    def mean_grad(self, theta: Tensor, K: int) -> Tensor:
        return mean(self.grad(theta, self.draw()) for _ in range(K))

    def full_grad(self, theta: Tensor) -> Tensor:
        return self._problem.grad(self._client, theta)


class Case(NamedTuple):
    """One algorithm on one problem, without a seed."""

    algorithm: str
    sys: System
    options: Mapping[str, Any] = {}
    problem: Mapping[str, Any] = {}
    schedule: Schedule = Schedule()


def trajectory(case: Case, seed: int) -> tuple[Bowls, Tensor]:
    """The problem, and θ^0, ..., θ^T on it."""
    problem = bowls(case.sys.N, seed, **case.problem)
    method = MethodSpec(case.algorithm, case.options).bound(case.sys)
    steps = simulate(method, problem, case.sys, case.schedule, BowlOracle).steps
    return problem, torch.stack([step.server.theta for step in steps])


def measure(case: Case, seed: int, what: Measure) -> float:
    """One number of one case."""
    problem, thetas = trajectory(case, seed)
    if what == "shift":
        other = case._replace(problem={**case.problem, "scale": 1000.0})
        return float((trajectory(other, seed)[1] - thetas).norm(dim=1).max())
    norms = problem.norms(thetas)
    if what == "late":
        return float(norms[-max(1, case.sys.T // 10) :].mean())
    return float((norms[:-1] ** (2 if what == "square" else 1)).mean())


class Law(NamedTuple):
    """A row of cases; with a power, the measure should fall along it like x^power, or faster."""

    label: str
    power: float | None
    cases: Mapping[int, Case]  # by x
    measure: Measure = "mean"


class Measurement(NamedTuple):
    """The values measured along a law."""

    label: str
    power: float | None
    x: Sequence[int]
    values: Mapping[int, Sequence[float]]  # by seed

    def slopes(self) -> list[float]:
        """Each seed's slope on logarithmic axes."""
        x = np.log(self.x)
        return [float(np.polyfit(x, np.log(y), 1)[0]) for y in self.values.values()]

    def ratios(self) -> list[float]:
        """Each seed's last value over its first."""
        return [y[-1] / y[0] for y in self.values.values()]


def constants(T: int, S: int = 4, K: int = 2) -> System:
    return System(16, S, K, T)


def in_rounds(
    name: str, rounds: Sequence[int], options: Mapping[str, Any] = {}, **more: Any
) -> dict[int, Case]:
    """The same case for more and more rounds, N = 16, S = 4, K = 2."""
    return {T: Case(name, constants(T), options, **more) for T in rounds}


def masfl(T: int) -> Case:
    """MasFL with its theorem's steps, which need L: γ = β / (4 L), η well below its bound."""
    sys = constants(T, S=2, K=1)
    beta = (sys.S * sys.K / T) ** 0.5
    options = {"gamma": beta / (4 * SMOOTHNESS), "eta": 1 / (16 * 5**0.5 * np.e * SMOOTHNESS)}
    return Case("masfl", sys, options, schedule=Schedule("buffered", concurrency=4))


def laws(claim: int, most: int) -> list[Law]:
    """The laws of a claim, with at most so many rounds."""
    T = [t for t in (16, 64, 256, 1024, 4096, 16384) if t <= most and (t >= 64 or most < 256)]
    middle = max(T[0], min(1024, most // 4))
    late = Schedule("buffered", concurrency=12)
    match claim:
        case 40:
            return [Law("PAdaMFed against T", -1 / 4, in_rounds("padamfed", T))]
        case 41:
            return [Law("PAdaMFed-VR (storm) against T", -1 / 3, in_rounds("padamfed_vr", T))]
        case 42:
            return [
                Law(
                    f"{title} against {letter}",
                    power,
                    {
                        x: Case(name, constants(middle, **{"S": 2, "K": 1, letter: x}))
                        for x in (1, 2, 4, 8)
                    },
                )
                for name, title, power in (
                    ("padamfed", "PAdaMFed", -1 / 4),
                    ("padamfed_vr", "PAdaMFed-VR", -1 / 3),
                )
                for letter in "SK"
            ]
        case 43:
            cubes = {8: 2, 64: 4, 512: 8, 4096: 16}
            squares = {16: 4, 64: 8, 256: 16, 1024: 32}
            return [
                Law(
                    "PAdaMFed against T, S K = T^(1/3)",
                    -1 / 3,
                    {
                        t: Case("padamfed", constants(t, 2, SK // 2))
                        for t, SK in cubes.items()
                        if t <= most and (t >= 64 or most < 512)
                    },
                ),
                Law(
                    "PAdaMFed-VR against T, S K = T^(1/2)",
                    -1 / 2,
                    {
                        t: Case("padamfed_vr", constants(t, 4, SK // 4))
                        for t, SK in squares.items()
                        if t <= most
                    },
                ),
            ]
        case 46:
            return [
                Law("ParFreFL against T", -1 / 4, in_rounds("parfrefl", T)),
                Law(
                    "ParFreFL against T, S K = T / 4",
                    -1 / 2,
                    {
                        t: Case("parfrefl", constants(t, 4, t // 16))
                        for t in (32, 128, 512)
                        if t <= max(most, 128)
                    },
                ),
            ]
        case 47:
            half = {"compressor": "top:0.5"}
            return [
                Law("ComParFreFL (top half) against T", -1 / 4, in_rounds("comparfrefl", T, half))
            ]
        case 48:
            return [
                Law(
                    "MasFL, mean square against T",
                    -1 / 2,
                    {t: masfl(t) for t in T if t >= min(256, T[-2])},
                    "square",
                )
            ]
        case 49:
            return [
                Law(
                    "AdaMasFL (12 jobs in flight) against T",
                    -1 / 4,
                    in_rounds("adamasfl", T, schedule=late),
                )
            ]
        case 44:
            return [
                Law(
                    label,
                    None,
                    {T[-1]: Case(name, constants(min(T[-1], 64)), options, {}, schedule)},
                    "shift",
                )
                for label, name, options, schedule in SCALE_FREE
            ]
        case 45:
            return far_apart([t for t in T if t <= 1024])
    raise ValueError(f"claim {claim} has no laws")


SCALE_FREE: tuple[tuple[str, str, Mapping[str, Any], Schedule], ...] = (
    ("PAdaMFed", "padamfed", {}, Schedule()),
    ("PAdaMFed-VR, storm", "padamfed_vr", {}, Schedule()),
    ("PAdaMFed-VR, ema", "padamfed_vr", {"momentum": "ema"}, Schedule()),
    ("ParFreFL", "parfrefl", {}, Schedule()),
    ("ComParFreFL, top", "comparfrefl", {"compressor": "top:0.3"}, Schedule()),
    ("ComParFreFL, sign", "comparfrefl", {"compressor": "sign"}, Schedule()),
    ("AdaMasFL", "adamasfl", {}, Schedule("buffered", concurrency=12)),
    ("FedAvg", "fedavg", {"eta": 1e-4}, Schedule()),
)


def far_apart(rounds: Sequence[int]) -> list[Law]:
    """Quadratic clients: the late gradient at larger distances, and rounds at the largest."""
    rows = []
    for title, name, power, late in (
        ("PAdaMFed", "padamfed", -1 / 4, Schedule()),
        ("PAdaMFed-VR", "padamfed_vr", -1 / 3, Schedule()),
        ("ParFreFL", "parfrefl", -1 / 4, Schedule()),
        ("AdaMasFL", "adamasfl", -1 / 4, Schedule("buffered", concurrency=12)),
    ):
        far = {
            spread: Case(name, constants(rounds[-1]), {}, {"ripple": 0.0, "spread": spread}, late)
            for spread in (1, 10, 100)
        }
        more = {T: far[100]._replace(sys=constants(T)) for T in rounds}
        rows += [
            Law(f"{title} against distance", None, far, "late"),
            Law(f"{title} against T at distance 100", power, more),
        ]
    exact = {"ripple": 0.0, "noise": 0.0, "spread": 10}
    fedavg = {
        T: Case("fedavg", System(16, 16, 8, T), {"eta": 0.1}, exact)
        for T in (rounds[0], rounds[-1])
    }
    return [*rows, Law("FedAvg, K = 8, no noise, against T", None, fedavg, "late")]


Point: TypeAlias = tuple[Law, int, Case, int]  # a law, the place in its row, the case, the seed
Value: TypeAlias = tuple[tuple[str, int, int], float]  # by label, seed and place


def one_by_one(points: Sequence[Point]) -> Iterator[Value]:
    for row, place, case, seed in points:
        yield (row.label, seed, place), measure(case, seed, row.measure)


def in_processes(points: Sequence[Point], workers: int) -> Iterator[Value]:
    crew = ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,))
    try:
        waiting = {
            crew.submit(measure, case, seed, row.measure): (row.label, seed, place)
            for row, place, case, seed in points
        }
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        crew.shutdown(cancel_futures=True)


def measure_laws(
    rows: Sequence[Law], seeds: Sequence[int], workers: int
) -> Iterator[tuple[int, int] | list[Measurement]]:
    """Measure all rows with all seeds: yields (done, total), and last the measurements."""
    points = [
        (row, place, case, seed)
        for row in rows
        for place, case in enumerate(row.cases.values())
        for seed in seeds
    ]
    points.sort(key=lambda point: -point[2].sys.T * point[2].sys.S * point[2].sys.K)
    values: dict[tuple[str, int, int], float] = {}
    for key, value in in_processes(points, workers) if workers > 1 else one_by_one(points):
        values[key] = value
        yield len(values), len(points)
    yield [
        Measurement(
            row.label,
            row.power,
            list(row.cases),
            {s: [values[row.label, s, place] for place in range(len(row.cases))] for s in seeds},
        )
        for row in rows
    ]


def slope_part(found: Measurement) -> Part:
    """Whether the 95 % interval of the slope is below the power plus the tolerance."""
    slopes, limit = found.slopes(), (found.power or 0.0) + TOLERANCE
    n = len(slopes)
    if n < 2:
        return below(f"{found.label}: slope", slopes, limit)
    half = STUDENT[min(n, len(STUDENT) + 1) - 2] * stdev(slopes) / sqrt(n)
    value = fmean(slopes)
    clear = abs(value - limit) > half
    return Part(
        f"{found.label}: slope", value, half, limit, "below", value < limit if clear else None
    )


def verdict(claim: int, found: Sequence[Measurement]) -> Verdict:
    """The verdict on a theorem."""
    if claim == 44:
        return decide([shift_part(each) for each in found])
    if claim == 45:
        return decide([distance_part(each) for each in found])
    numbers: dict[str, float | str] = {
        f"{each.label}, at {x}": round(fmean(y[place] for y in each.values.values()), 5)
        for each in found
        for place, x in enumerate(each.x)
    }
    parts = [slope_part(each) for each in found]
    intervals = {
        f"{p.what}, 95 %": f"{p.value - p.error:.3f} to {p.value + p.error:.3f}" for p in parts
    }
    return decide(parts, {**intervals, **numbers})


def shift_part(found: Measurement) -> Part:
    values = [y[0] for y in found.values.values()]
    if found.label == "FedAvg":
        return above("trajectory shift of FedAvg", values, 0.01)
    return below(f"trajectory shift of {found.label}", values, 1e-6)


def distance_part(found: Measurement) -> Part:
    if found.label.startswith("FedAvg"):
        return above(
            "FedAvg, K = 8: gradient after many rounds over that after few", found.ratios(), 0.9
        )
    if found.power is not None:
        return slope_part(found)
    return below(f"{found.label}: gradient at 100 over that at 1", found.ratios(), 1.25)
