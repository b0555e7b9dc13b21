"""PolarFL's identities, P1 to P10: its invariances, its special cases, its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tunefree
from tests.by_hand import CastOracle, Moment, by_hand
from tests.lossy import lossy
from tests.problem import simulate, simulate_buffered
from tests.shaped import WIDE, problem_of
from tunefree import search
from tunefree.core import Algorithm, Oracle, Reply, System, Vec, bind, mean
from tunefree.fleet.job import Job
from tunefree.geometry import distance, split, units
from tunefree.methods.parfrefl import ParFreFL
from tunefree.methods.polarfl import Down, Pace, PolarFL, Server, Up
from tunefree.methods.polarfl_stateless import PolarFLStateless
from tunefree.models.objective import Objective
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Schedule
from tunefree.testing import Array, Problem, Trace, quadratic
from tunefree.wire import from_spec

SYS = System(N=9, S=3, K=4, T=25)
SHAPES = ((4, 3), (2,), (), (3, 4), (2, 2))
SIZES = [prod(shape) for shape in SHAPES]
TOP = from_spec("top:0.4", SIZES)

Change = Callable[[Array], Array]
VARIANTS: list[Any] = [
    pytest.param({}, id="default"),
    pytest.param({"C": TOP}, id="top"),
    pytest.param({"C": from_spec("sign", SIZES)}, id="sign"),
    pytest.param({"geometry": "tensor"}, id="tensor"),
    pytest.param({"geometry": "sphere"}, id="sphere"),
    pytest.param({"first_pass": "on"}, id="first-pass"),
    pytest.param({"reach": "distance"}, id="distance"),
    pytest.param({"average": "off", "reach": "off"}, id="plain"),
]
every_variant = pytest.mark.parametrize("options", VARIANTS)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def polar(sys: System = SYS, **options: Any) -> PolarFL:
    return bind(PolarFL(**options), sys, SHAPES)


def problem(scale: float = 1) -> Problem:
    return quadratic(N=SYS.N, d=sum(SIZES), scale=scale)


def seen_as(original: Problem, there: Change, back: Change) -> Problem:
    """θ' = there(θ) and f'(θ') = f(back(θ')), of a rotation and its inverse."""

    class Seen(Problem):
        @property
        def theta0(self) -> Array:
            return there(original.theta0)

        def grad(self, client: int, theta: Array, xi: Array) -> Array:
            return there(original.grad(client, back(theta), xi))

    return Seen(*original)


def rescaled(original: Problem, s: float) -> Problem:
    """θ' = s θ and f'(θ') = f(θ'/s)."""

    class Rescaled(Problem):
        @property
        def theta0(self) -> Array:
            return s * original.theta0

        def grad(self, client: int, theta: Array, xi: Array) -> Array:
            return original.grad(client, theta / s, xi) / s

    return Rescaled(*original)


def states(algo: Algorithm, problem: Problem, dtype: torch.dtype) -> list[Any]:
    moments = list(by_hand(algo, problem, dtype=dtype))
    assert not torch.allclose(moments[0].server.theta, moments[-1].server.theta, rtol=1e-2)
    return [moment.server for moment in moments]


def same_bits(ours: Trace, theirs: Trace) -> None:
    assert len(ours.steps) == len(theirs.steps)
    assert not np.allclose(ours.thetas[0], ours.thetas[-1], rtol=1e-3)
    for a, b in zip(ours.steps, theirs.steps, strict=True):
        for mine, other in zip(a.server, b.server, strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other))


@pytest.mark.parametrize("power", [-20, 7])
@both_types
@every_variant
def test_p1_the_unit_of_the_loss_is_not_seen(
    options: dict[str, Any], dtype: torch.dtype, power: int
) -> None:
    plain = states(polar(**options), problem(), dtype)
    scaled = states(polar(**options), problem(scale=2.0**power), dtype)
    for a, b in zip(plain, scaled, strict=True):
        assert torch.equal(a.theta, b.theta)
        assert torch.equal(a.x, b.x)
        assert torch.equal(2.0**power * a.c, b.c)
        assert torch.equal(2.0**power * a.g, b.g)
        assert a.R == b.R


@pytest.mark.parametrize("power", [-20, 3])
@both_types
@every_variant
def test_p2_there_is_no_hidden_unit(
    options: dict[str, Any], dtype: torch.dtype, power: int
) -> None:
    """The model in another unit: the trajectory is that one in the unit, bit for bit."""
    s = 2.0**power
    plain = states(polar(**options), problem(), dtype)
    scaled = states(polar(**options), rescaled(problem(), s), dtype)
    for a, b in zip(plain, scaled, strict=True):
        assert torch.equal(s * a.theta, b.theta)
        assert torch.equal(s * a.x, b.x)
        assert torch.equal(a.c / s, b.c)
        assert torch.equal(a.g / s, b.g)
        assert a.R == b.R


@pytest.mark.parametrize("power", [-20, 3])
@both_types
@pytest.mark.parametrize("options", [{}, {"C": TOP}, {"sigma": 0.7}], ids=["plain", "top", "noise"])
def test_p1_and_p2_of_the_stateless_one(
    options: dict[str, Any], dtype: torch.dtype, power: int
) -> None:
    s, algo = 2.0**power, bind(PolarFLStateless(**options), SYS, SHAPES)
    plain = states(algo, problem(), dtype)
    louder = states(algo, problem(scale=s), dtype)
    larger = states(algo, rescaled(problem(), s), dtype)
    for a, b, c in zip(plain, louder, larger, strict=True):
        assert torch.equal(a.theta, b.theta)
        assert torch.equal(s * a.theta, c.theta)
        assert torch.equal(a.m, b.m)
        assert torch.equal(a.m, c.m)


def test_the_stateless_one_is_polarfl_where_both_see_one_direction() -> None:
    """One client, one local step and gradients of constant norm: their momenta are the same."""

    class OfOneLength(Problem):
        def grad(self, client: int, theta: Array, xi: Array) -> Array:
            g: Array = super().grad(client, theta, xi)
            return g / np.linalg.norm(g)

    sys = System(N=1, S=1, K=1, T=40)
    start = OfOneLength(*quadratic(N=1, d=4))
    one: Any = ((4,),)
    theirs = simulate(bind(PolarFL(first_pass="off"), sys, one), start).thetas
    ours = simulate(bind(PolarFLStateless(), sys, one), start).thetas
    assert not np.allclose(ours[-1], ours[0], rtol=1e-2)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)  # later m_0 = v, where m_i = beta g


@pytest.mark.parametrize("power", [-3, 3])
def test_p2_also_where_a_tensor_starts_at_zero(power: int) -> None:
    original, algo = problem_of(SYS, WIDE), bind(PolarFL(), SYS, WIDE)
    assert 0 in [float(u.norm()) for u in split(torch.from_numpy(original.theta0), WIDE)]
    plain = simulate(algo, original).thetas
    scaled = simulate(algo, rescaled(original, 2.0**power)).thetas
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(2.0**power * a, b)


@pytest.mark.parametrize("algo", [bind(ParFreFL(), SYS), polar(units="one")], ids=["paper", "one"])
def test_p2_a_unit_is_hidden_in_the_papers_steps(algo: Algorithm) -> None:
    plain = simulate(algo, problem()).thetas[-1]
    assert not np.allclose(8 * plain, simulate(algo, rescaled(problem(), 8)).thetas[-1], rtol=1e-2)


def rotation(n: int, seed: int) -> Array:
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
    return Q


@pytest.mark.parametrize(("rows", "columns"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)], ids=str)
def test_p3_rotations_of_rows_and_columns_are_not_seen(
    shape: tuple[int, int], rows: bool, columns: bool
) -> None:
    n, m = shape
    U = rotation(n, 1) if rows else np.eye(n)
    V = rotation(m, 2) if columns else np.eye(m)

    def there(v: Array) -> Array:
        return np.asarray(U @ v.reshape(shape) @ V).ravel()

    def back(v: Array) -> Array:
        return np.asarray(U.T @ v.reshape(shape) @ V.T).ravel()

    sys, original = SYS._replace(T=12), quadratic(N=SYS.N, d=n * m)
    algo = bind(PolarFL(), sys, (shape,))
    plain, turned = (simulate(algo, each) for each in (original, seen_as(original, there, back)))
    expected = [there(theta) for theta in plain.thetas]
    np.testing.assert_allclose(turned.thetas, expected, rtol=1e-8, atol=1e-10)
    other = bind(PolarFL(), sys, ((n * m - 1, 1), (1,)))  # not the matrix that is rotated
    turned = simulate(other, seen_as(original, there, back))
    expected = [there(theta) for theta in simulate(other, original).thetas]
    assert not np.allclose(turned.thetas[-1], expected[-1], rtol=1e-3)


class InParFreFLsPlace(PolarFL):
    """With the theorem's constant steps, of clients too."""

    def pace(self, t: int, R: float) -> Pace:
        theirs = bind(ParFreFL(), self.sys)
        return Pace(theirs.gamma, theirs.gamma, theirs.beta)

    def broadcast(self, s: Server) -> Down:
        return super().broadcast(s)._replace(steps=(bind(ParFreFL(), self.sys).eta,))


@both_types
def test_p4_on_the_sphere_with_unit_one_it_is_parfrefl(dtype: torch.dtype) -> None:
    sys, start = System(N=6, S=4, K=4, T=256), problem()
    theirs = bind(ParFreFL(), sys)
    assert (theirs.eta, theirs.gamma, theirs.beta) == (1 / 32, 1 / 32, 1 / 4)
    plain = {"geometry": "sphere", "units": "one", "average": "off", "reach": "off"}
    ours = bind(InParFreFLsPlace(first_pass="on", **plain), sys, SHAPES)  # type: ignore[arg-type]
    for a, b in zip(
        by_hand(ours, start, dtype=dtype), by_hand(theirs, start, dtype=dtype), strict=True
    ):
        assert torch.equal(a.server.theta, b.server.theta)
        assert torch.equal(a.server.c, b.server.c)
        for mine, other in zip(a.clients, b.clients, strict=True):
            assert torch.equal(mine[0], other.m_i)
    assert float((a.server.theta - torch.from_numpy(start.theta0)).norm()) > 0.5


@every_variant
def test_p5_buffered_without_delay_is_synchronous(options: dict[str, Any]) -> None:
    algo = polar(**options)
    ours, theirs = simulate_buffered(algo, problem(), SYS.S), simulate(algo, problem())
    same_bits(ours, theirs)
    for client in range(SYS.N):
        for mine, other in zip(ours.fleet.states[client], theirs.fleet.states[client], strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other))
    late = simulate_buffered(algo, problem(), 7)
    assert not np.allclose(late.thetas[-1], theirs.thetas[-1], rtol=1e-3)


@pytest.mark.parametrize("first_pass", ["off", "on"])
def test_p6_the_identity_compresses_nothing(first_pass: Any) -> None:
    """Up to rounding: with it a client stores c_i + (m_i' - c_i), without it m_i'."""
    dense = simulate(polar(first_pass=first_pass), problem()).thetas
    identity = polar(C=from_spec("identity", SIZES), first_pass=first_pass)
    np.testing.assert_allclose(simulate(identity, problem()).thetas, dense, rtol=1e-8, atol=1e-10)
    assert not np.allclose(simulate(polar(C=TOP), problem()).thetas[-1], dense[-1], rtol=1e-3)


def lengths_of(v: Array, shapes: Sequence[tuple[int, ...]]) -> Array:
    ends = np.cumsum([prod(shape) for shape in shapes])
    return np.array([np.linalg.norm(u) for u in np.split(v, ends[:-1])])


@pytest.mark.parametrize("options", [{}, {"C": TOP}, {"reach": "distance"}], ids=str)
@pytest.mark.parametrize("late", [False, True])
def test_p7_every_tensor_moves_by_its_own_unit(options: dict[str, Any], late: bool) -> None:
    """By b_t a_t γ_t r_l in a step, so never further than r_l Σ γ_t; the average less far."""
    start, algo, (_, S, K, _) = problem(), polar(**options), SYS
    trace = simulate_buffered(algo, start, 7) if late else simulate(algo, start)
    r, travelled, most, at_random = lengths_of(start.theta0, SHAPES), 0.0, 0.0, 0.0
    reached = [0.0]
    for t, (before, after) in enumerate(pairwise(trace.steps)):
        gamma = (S * K) ** 0.25 / (t + 10) ** 0.75
        b = 1 / np.sqrt(1 + np.mean(after.staleness))
        a = b * min(1, max(0.1, *reached))
        step = lengths_of((after.server.x - before.server.x).numpy(), SHAPES)
        np.testing.assert_allclose(step, a * gamma * r, rtol=1e-9)
        travelled, most = travelled + a * gamma, most + gamma
        at_random += (a * gamma) ** 2
        for model in (after.server.x, after.server.theta):
            come = lengths_of(model.numpy() - start.theta0, SHAPES) / r
            assert np.all(come <= travelled * (1 + 1e-9))
        gone = lengths_of(after.server.x.numpy() - start.theta0, SHAPES) / r
        D2 = float((gone**2).mean())
        earned = D2**0.5 if "reach" in options else 8 * (D2 - at_random) / travelled
        reached.append(earned)
        np.testing.assert_allclose(after.server.R, max(reached), rtol=1e-9, atol=1e-12)
    assert max(reached) > 0.2
    assert D2**0.5 <= travelled <= most


@pytest.mark.parametrize("schedule", ["synchronous", "buffered"])
@pytest.mark.parametrize("C", [None, TOP], ids=["dense", "top"])
@pytest.mark.parametrize("first_pass", ["off", "on"])
def test_p8_c_and_the_share_of_known_clients_are_means_whatever_is_lost(
    first_pass: Any, C: Any, schedule: Any
) -> None:
    algo = polar(SYS._replace(T=40), C=C, first_pass=first_pass)
    fleet, theta0 = lossy(algo, problem(), 0.3, 0.2, 0.2)
    lost = 0
    settings = Schedule("buffered", 7) if schedule == "buffered" else Schedule()
    for step in play(algo, fleet, theta0, 1, settings):
        lost += len(step.absent)
        held = mean(fleet.states[client].c_i for client in range(SYS.N))
        torch.testing.assert_close(step.server.c, held, rtol=1e-9, atol=1e-9)
        known = [fleet.states[client].known for client in range(SYS.N)]
        assert step.server.known == pytest.approx(sum(known) / SYS.N)
    assert lost > 20
    assert float(step.server.c.norm()) > 0.1
    assert torch.isfinite(step.server.theta).all()


def test_p9_the_server_steps_along_the_polar_factor_of_g() -> None:
    """By SVD; where g has no small singular values the cosine is that of the known band.

    Every client has been heard of, so that g is c and the mean change.
    """
    replies: list[list[Reply]] = []

    def keep(t: int, these: list[Reply]) -> list[Reply]:
        replies.append(these)
        return these

    moments = list(by_hand(polar(first_pass="on"), problem(), accept=keep))
    compared = 0
    for (before, after), these in zip(pairwise(moments), replies[1:], strict=True):
        g = before.server.c + mean(reply.up.d for reply in these)
        move = before.server.x - after.server.x
        for u, moved, shape in zip(split(g, SHAPES), split(move, SHAPES), SHAPES, strict=True):
            cosine = float(u.dot(moved) / (u.norm() * moved.norm()))
            if len(shape) < 2:
                assert cosine == pytest.approx(1)
                continue
            U, S, Vh = torch.linalg.svd(u.view(shape), full_matrices=False)
            if float(S[-1] / u.norm()) >= 0.01:
                O, by_norm = (U @ Vh).reshape(-1), cosine  # noqa: E741
                cosine = float(O.dot(moved) / (O.norm() * moved.norm()))
                assert 0.967 <= cosine <= 1 + 1e-12
                singular = torch.diag(U.T @ moved.view(shape) @ Vh.T)
                assert float(singular.max() / singular.min()) < 1.14 / 0.68
                compared += cosine > by_norm
    assert compared > 40


def test_where_nobody_returns_it_is_momentum_on_the_server() -> None:
    """With a billion clients: g moves by beta towards the mean gradient, from the first on."""
    algo = polar(SYS._replace(N=10**9))
    sent = torch.randn(
        SYS.T, SYS.S, sum(SIZES), generator=torch.Generator().manual_seed(1)
    ).double()
    s, momentum = algo.server(torch.from_numpy(problem().theta0)), sent[0].mean(0)
    for t, ups in enumerate(sent):
        beta = algo.pace(t, 1).beta if t else 1.0
        momentum = (1 - beta) * momentum + beta * ups.mean(0)
        s = algo.aggregate(s, [Reply(t, 1, 0, Up(d, 1.0)) for d in ups])
        torch.testing.assert_close(s.g, momentum, rtol=1e-6, atol=1e-6)
    assert beta < 0.7


def test_a_first_upload_is_the_plain_mean_gradient_whatever_beta_was_sent() -> None:
    algo, theta = polar(), torch.from_numpy(problem().theta0)
    down = Down(theta, (0.0,) * len(SHAPES), 0.25)
    job = Job(0, 5, "round", 0, down)
    client, up = algo.local(algo.client(theta), down, CastOracle(problem(), job))
    F = CastOracle(problem(), job)
    gradient = F.mean_grad(theta, SYS.K)
    torch.testing.assert_close(up.d, gradient)
    assert (up.first, client.known) == (1.0, 1.0)
    client, up = algo.local(client, down, CastOracle(problem(), job._replace(t=6)))
    F = CastOracle(problem(), job._replace(t=6))
    torch.testing.assert_close(up.d, 0.25 * (F.mean_grad(theta, SYS.K) - gradient))
    assert up.first == 0.0


def test_uploads_that_all_claim_to_be_the_first_leave_no_negative_share() -> None:
    """The last g then counts as in momentum, never with a weight beyond that."""
    algo = polar()
    s = algo.server(torch.from_numpy(problem().theta0))._replace(known=2.0, t=3, R=1.0)
    s = s._replace(g=torch.ones(sum(SIZES)).double())
    beta, d = algo.pace(3, 1).beta, 3 * s.g
    after = algo.aggregate(s, [Reply(0, 1, 0, Up(d, 1.0))])
    torch.testing.assert_close(after.g, beta * (d - s.g))


class Blind(CastOracle):
    """Has zero gradients in some tensors."""

    without: Sequence[int] = ()

    def grad(self, theta: Vec, xi: Array) -> Vec:
        grad = super().grad(theta, xi)
        for place in self.without:
            split(grad, SHAPES)[place].zero_()
        return grad


@pytest.mark.parametrize("without", [(0,), (1,), (2,), (3, 4), range(5)], ids=str)
@pytest.mark.parametrize("options", [{}, {"C": TOP}, {"geometry": "sphere"}], ids=str)
@both_types
def test_p10_a_tensor_without_gradient_stays(
    options: dict[str, Any], without: Sequence[int], dtype: torch.dtype
) -> None:
    oracle: Callable[[Problem, Job], Oracle] = type("Blinded", (Blind,), {"without": without})
    begin, *_, end = by_hand(polar(**options), problem(), dtype=dtype, oracle=oracle)
    for client in end.clients:
        assert all(torch.isfinite(torch.as_tensor(v)).all() for v in client)
    for place, (u, v) in enumerate(
        zip(split(begin.server.x, SHAPES), split(end.server.x, SHAPES), strict=True)
    ):
        assert torch.isfinite(v).all()
        assert torch.equal(u, v) == (place in without)
    assert torch.isfinite(end.server.theta).all()


class Text(nn.Module):
    """Words of which few are used, one number, a bias of zeros and a layer that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 5)
        self.frozen = nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.single = nn.Parameter(torch.ones(1))
        self.out = nn.Linear(5, 3)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.frozen(self.words(x).mean(1)))
        answer: torch.Tensor = self.out(self.gain * hidden) * self.single
        return answer


def texts(words: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        x = torch.randint(words, (12, 4), generator=generator)
        yield x, x[:, 0] % 3


@pytest.mark.parametrize("compressor", [None, "top:0.3"])
def test_p10_words_that_nobody_uses_and_frozen_layers_stay(compressor: Any) -> None:
    torch.manual_seed(1)
    model, known = Text(), 17
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    more = {"compressor": compressor} if compressor else {}
    run = tunefree.train(
        model,
        list(texts(known)),
        algorithm="polarfl",
        rounds=12,
        per_round=3,
        local_steps=3,
        batch_size=4,
        progress=False,
        **more,
    )
    shapes = Objective(model).shapes
    assert len(shapes) == 5  # without the frozen ones
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    theta0 = torch.cat([before[name].reshape(-1) for name in names])
    r = units(theta0, shapes)
    after = dict(zip(names, split(run.theta, shapes), strict=True))
    assert torch.isfinite(run.theta).all()
    travel = sum((3 * 3) ** 0.25 / (t + 10) ** 0.75 for t in range(12))
    for name, r_l in zip(names, r, strict=True):
        moved = float((after[name] - before[name].reshape(-1)).norm())
        assert 0 < moved <= r_l * travel * (1 + 1e-5)
    words = after["words.weight"].view(40, 5)
    assert torch.equal(words[known:], before["words.weight"][known:])
    assert not torch.equal(words[:known], before["words.weight"][:known])
    for name in ("frozen.weight", "frozen.bias"):
        assert torch.equal(run.model.get_parameter(name), before[name])


def test_gradients_of_an_oracle_are_not_changed() -> None:
    """The oracle may store a gradient that it returned."""
    given: list[tuple[Vec, Vec]] = []

    class Keeping(CastOracle):
        def grad(self, theta: Vec, xi: Array) -> Vec:
            grad = super().grad(theta, xi)
            given.append((grad, grad.clone()))
            return grad

    for _ in by_hand(polar(), problem(), oracle=Keeping):
        pass
    assert len(given) == SYS.T * SYS.S * SYS.K
    assert all(torch.equal(kept, copy) for kept, copy in given)


def test_reach_as_distance_is_that_of_the_iterate_and_never_falls() -> None:
    moments: list[Moment] = list(by_hand(polar(reach="distance"), problem()))
    theta0 = torch.from_numpy(problem().theta0)
    r = units(theta0, SHAPES)
    R = [moment.server.R for moment in moments]
    assert R[0] == 0
    gone = [distance(moment.server.x, theta0, r, SHAPES) for moment in moments]
    assert [max(gone[: t + 1]) for t in range(len(gone))] == R


def walked(directions: Sequence[Vec]) -> Server:
    """The server after steps against these means of gradients, from a model of ones."""
    algo = bind(PolarFL(), System(N=1, S=1, K=1, T=99))
    s = algo.server(torch.ones(4, dtype=torch.float64))
    for g in directions:
        s = algo.aggregate(s._replace(c=0 * g, known=1.0), [Reply(0, 1, 0, Up(g, 0.0))])
    return s


def test_reach_is_earned_on_a_straight_path_and_not_on_a_crooked_one() -> None:
    one, other, *_ = torch.eye(4, dtype=torch.float64)
    assert walked([one]).R < 1e-12  # a single step proves nothing
    straight = walked([one] * 6)
    assert straight.R > 0.3
    assert walked([one, -one] * 3).R < 1e-12
    assert walked([one, other] * 3).R < 0.6 * straight.R


def test_threads_do_not_change_a_bit() -> None:
    """Matrix products differ with two threads, so the server's step uses one."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 12, 50, generator=generator)
    y = torch.randint(10, (6, 12), generator=generator)
    constants: dict[str, Any] = {"rounds": 5, "per_round": 3, "local_steps": 2, "batch_size": 4}
    before, ends = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 4):
            torch.manual_seed(2)
            torch.set_num_threads(threads)
            run = tunefree.train(
                nn.Linear(50, 10),
                list(zip(x, y, strict=True)),
                algorithm="polarfl",
                fleet="serial",
                progress=False,
                **constants,
            )
            ends.add(run.theta_sha256)
    finally:
        torch.set_num_threads(before)
    assert len(ends) == 1


@pytest.mark.slow
def test_a_run_that_goes_on_long_after_all_is_learned_loses_nothing(tmp_path: Any) -> None:
    """Digits are learned by round 200; normalised noise must not lead the model away again."""
    shared = search.settings(data="digits", eval_every=100, rounds=1000)
    (found,) = search.compare(["polarfl"], shared, [0], tmp_path / "long")
    assert (found.accuracy or 0) > 0.99
