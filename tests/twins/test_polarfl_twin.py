"""PolarFL against its page: dense, compressed, late, and every ablation of it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from tests.problem import simulate, simulate_buffered
from tests.twins.compression import per_tensor, qsgd, rotated, sign, top
from tests.twins.polarfl import newton_schulz, own_units, polarfl
from tests.twins.test_async_twins import SETTINGS, Setting
from tests.twins.test_twins import SYSTEMS, agree
from tunefree.core import System, Vec, bind
from tunefree.fleet.serial import Serial
from tunefree.methods.polarfl import PolarFL
from tunefree.schedule.delays import LAWS
from tunefree.schedule.simulate import simulate as play
from tunefree.testing import Array, Problem, QuadraticOracle, quadratic
from tunefree.wire import from_spec

WIDE = ((2, 3), (2,), (), (2, 2))  # a matrix, a vector, one number and a matrix that starts at zero
KERNEL = ((3, 2, 1, 2), (3,), (3, 2), (1, 4), (1,))  # the vector starts at zero
ALIKE = ((2, 3), (3, 2), (3, 1))  # the first two go through Newton-Schulz together
LAYOUTS = [pytest.param(WIDE, id="wide"), pytest.param(KERNEL, id="kernel")]
LAYOUTS.append(pytest.param(ALIKE, id="alike"))
PARTIAL = System(N=7, S=3, K=4, T=30)

all_systems = pytest.mark.parametrize("sys", SYSTEMS)
all_layouts = pytest.mark.parametrize("shapes", LAYOUTS)
Shapes = tuple[tuple[int, ...], ...]
ZERO = {WIDE: slice(9, 13), KERNEL: slice(12, 15), ALIKE: slice(0, 0)}


class StartingAtZero(Problem):
    """The problem with one tensor that starts at zero."""

    @property
    def theta0(self) -> Array:
        theta0 = np.array(super().theta0)
        for shapes, zero in ZERO.items():
            if sum(map(prod, shapes)) == self.d:
                theta0[zero] = 0
        return theta0


def problem_of(sys: System, shapes: Shapes) -> Problem:
    return StartingAtZero(*quadratic(N=sys.N, d=sum(map(prod, shapes)), seed=sys.T))


def sizes(shapes: Shapes) -> list[int]:
    return [prod(shape) for shape in shapes]


@all_layouts
@all_systems
def test_polarfl(sys: System, shapes: Shapes) -> None:
    problem = problem_of(sys, shapes)
    trace = simulate(bind(PolarFL(), sys, shapes), problem)
    agree(trace.thetas, polarfl(problem, trace.uploads, sys.K, shapes), sys.T)


class Vanishing(StartingAtZero):
    """Gradients that fade as the model leaves its start, as where all samples are learned."""

    def grad(self, client: int, theta: Array, xi: Array) -> Array:
        far = np.linalg.norm(theta - self.theta0) / np.linalg.norm(self.theta0)
        faded: Array = super().grad(client, theta, xi) * np.exp(-20 * far)
        return faded


def test_steps_fade_out_where_nothing_is_left_to_gain() -> None:
    problem = Vanishing(*problem_of(PARTIAL, WIDE))
    trace = simulate(bind(PolarFL(), PARTIAL, WIDE), problem)
    agree(trace.thetas, polarfl(problem, trace.uploads, PARTIAL.K, WIDE), PARTIAL.T)
    shares = [step.server.h for step in trace.steps]
    assert shares[0] == 1
    assert min(shares) < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"geometry": "tensor"},
        {"geometry": "sphere"},
        {"units": "one"},
        {"average": "off"},
        {"reach": "off"},
        {"reach": "distance"},
        {"first_pass": "on"},
        {"geometry": "sphere", "units": "one", "reach": "off", "average": "off"},
    ],
    ids=lambda options: "-".join(options.values()),
)
@all_systems
def test_ablations(sys: System, options: dict[str, Any]) -> None:
    problem = problem_of(sys, WIDE)
    trace = simulate(bind(PolarFL(**options), sys, WIDE), problem)
    agree(trace.thetas, polarfl(problem, trace.uploads, sys.K, WIDE, **options), sys.T)
    plain = simulate(bind(PolarFL(), sys, WIDE), problem).thetas
    assert not np.allclose(trace.thetas[-1], plain[-1], rtol=1e-3)


@pytest.mark.parametrize(
    ("spec", "naive"),
    [
        ("top:0.4", top(0.4)),
        ("sign", sign),
        ("qsgd-contractive:3", qsgd(3, True)),
        ("rotated:2", rotated([0.4528, 1.510])),
    ],
    ids=["top", "sign", "qsgd", "rotated"],
)
@pytest.mark.parametrize("first_pass", ["off", "on"])
@all_systems
def test_compressed(sys: System, first_pass: Any, spec: str, naive: Any) -> None:
    problem = problem_of(sys, WIDE)
    algo = bind(PolarFL(from_spec(spec, sizes(WIDE)), first_pass=first_pass), sys, WIDE)
    trace = simulate(algo, problem)
    C = per_tensor(naive, sizes(WIDE))
    page = polarfl(problem, trace.uploads, sys.K, WIDE, C, first_pass=first_pass)
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("spec", ["", "top:0.4"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_late(setting: Setting, spec: str) -> None:
    """A client works with the model, the steps and the beta it was sent."""
    sys, concurrency, dispatch, law, dropout = setting
    problem = problem_of(sys, WIDE)
    algo = bind(PolarFL(from_spec(spec, sizes(WIDE)) if spec else None), sys, WIDE)
    trace = simulate_buffered(algo, problem, concurrency, dispatch, LAWS[law], dropout)
    C = [per_tensor(top(0.4), sizes(WIDE))] if spec else []
    agree(trace.thetas, polarfl(problem, trace.uploads, sys.K, WIDE, *C), sys.T)


def test_defaults_are_the_pages() -> None:
    options = ("geometry", "units", "average", "reach", "first_pass")
    algo = bind(PolarFL(), PARTIAL)
    assert [getattr(algo, name) for name in options] == ["polar", "own", "on", "straight", "off"]
    assert (algo.C, algo.opening()) == (None, ())


class Float32Oracle(QuadraticOracle):
    """The same client seen through single precision."""

    def grad(self, theta: Vec, xi: Array) -> Vec:
        return super().grad(theta.double(), xi).float()


def test_single_precision_stays_near_the_page() -> None:
    sys, shapes = PARTIAL._replace(T=15), WIDE
    problem, algo = problem_of(sys, shapes), bind(PolarFL(), sys, shapes)
    theta0 = torch.from_numpy(problem.theta0).float()
    fleet = Serial(algo, theta0, lambda job: Float32Oracle(problem, job))
    steps = list(play(algo, fleet, theta0, problem.seed))
    page = polarfl(problem, [[(i, s.t) for i in s.clients] for s in steps[1:]], sys.K, shapes)
    assert steps[-1].server.theta.dtype == torch.float32
    ours = np.array([step.server.theta.numpy() for step in steps])
    np.testing.assert_allclose(ours, np.array(page), rtol=2e-4, atol=1e-5)


def test_the_pages_own_numbers() -> None:
    """The twin's own rules, where they can be computed by hand."""
    starts = [np.array([3.0, 4.0]), np.zeros(4), np.array([[2.0]]), np.array([6.0, 8.0] * 2)]
    lengths = [5.0, 2 * 5 / 2**0.5, 2.0, 200**0.5]  # per number 3.54, -, 2 and 7.07
    np.testing.assert_allclose(own_units(starts), lengths)
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    O = newton_schulz(7 * rotation)  # noqa: E741
    np.testing.assert_allclose(O / np.linalg.norm(O) * 2**0.5, rotation)
