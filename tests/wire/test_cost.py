"""What each algorithm sends, in vectors of length d, counted from the messages of a run."""

from __future__ import annotations

import pytest

from tests.problem import simulate
from tests.variants import METHODS
from tunefree.core import System
from tunefree.methods.registry import build
from tunefree.schedule.exchange import Step
from tunefree.testing import quadratic

SYS = System(N=7, S=3, K=2, T=8)
PROBLEM = quadratic(N=SYS.N)

ONE = 1 / (64 * PROBLEM.d)  # one bit
TOP = (64 + 3) * ONE  # one of five numbers, and its position
RAND = (64 + 32) * ONE  # one number and a seed
SIGN = (64 + 5) * ONE  # the scale and five signs
QSGD = (64 + 5 * (1 + 3)) * ONE  # the norm, and five times a sign and a level from 0 to 4
ROTATED = (64 + 32 + 5 * 2) * ONE  # the scale, a seed, and five numbers of two bits

COSTS: list[tuple[str, dict[str, object], tuple[float, float], tuple[float, float]]] = [
    # name, options, (down, up) of a client in a round, (down, up) of a client in the opening
    # with a step for its one tensor and beta down, and whether it is the first time up
    ("polarfl", {}, (1 + 2 * 32 * ONE, 1 + 32 * ONE), (0, 0)),
    ("polarfl", {"first_pass": "on"}, (1 + 2 * 32 * ONE, 1 + 32 * ONE), (1, 1)),
    ("polarfl", {"compressor": "top:0.05"}, (1 + 2 * 32 * ONE, TOP + 32 * ONE), (0, 0)),
    ("polarfl", {"compressor": "sign"}, (1 + 2 * 32 * ONE, SIGN + 32 * ONE), (0, 0)),
    ("polarfl", {"compressor": "rotated:2"}, (1 + 2 * 32 * ONE, ROTATED + 32 * ONE), (0, 0)),
    ("polarfl_stateless", {}, (1 + 32 * ONE, 1), (0, 0)),  # with a step for its one tensor
    ("polarfl_stateless", {"compressor": "top:0.05"}, (1 + 32 * ONE, TOP), (0, 0)),
    ("padamfed", {}, (2, 2), (1, 1)),
    ("padamfed_vr", {}, (3, 3), (1, 1)),
    ("padamfed_vr", {"momentum": "storm"}, (3, 3), (1, 1)),
    ("padamfed_vr", {"momentum": "ema"}, (3, 2), (1, 1)),
    ("parfrefl", {}, (1, 1), (1, 1)),
    ("fedavg", {}, (1, 1), (0, 0)),
    ("fedavg", {"weighting": "examples"}, (1, 1), (0, 0)),
    ("scaffold", {"option": "I"}, (2, 2), (0, 0)),
    ("scaffold", {"option": "II"}, (2, 2), (0, 0)),
    ("scaffold", {"start": "gradients"}, (2, 2), (1, 1)),
    ("scaffold_m", {}, (2, 2), (1, 1)),
    ("scaffold_m_vr", {}, (3, 2), (1, 1)),
    ("scaffold_norm", {}, (2, 2), (1, 1)),
    ("fedavgm", {}, (1, 1), (0, 0)),
    ("slowmo", {}, (1, 1), (0, 0)),
    ("fedexp", {"final": "average"}, (1, 1), (0, 0)),
    ("fedexp", {"final": "last"}, (1, 1), (0, 0)),
    ("fedprox", {}, (1, 1), (0, 0)),
    ("fednova", {}, (1, 1 + 2 * 32 * ONE), (0, 0)),
    ("feddyn", {}, (1, 1), (0, 0)),
    ("fedcm", {}, (2, 1), (0, 0)),
    ("fedadagrad", {}, (1, 1), (0, 0)),
    ("fedadam", {}, (1, 1), (0, 0)),
    ("fedyogi", {}, (1, 1), (0, 0)),
    ("fedams_server", {}, (1, 1), (0, 0)),
    ("fedams_local", {}, (2, 2), (0, 0)),
    ("mime", {}, (3, 2), (0, 0)),
    ("mime", {"statistics": "batches"}, (3, 2), (0, 0)),
    ("mime_lite", {}, (2, 2), (0, 0)),
    ("fedsps", {"rule": "constant"}, (1, 1), (0, 0)),
    ("fedsps", {"rule": "decreasing"}, (1, 1), (0, 0)),
    ("delta_sgd", {"batches": "same"}, (1, 1), (0, 0)),
    ("delta_sgd", {"batches": "own"}, (1, 1), (0, 0)),
    ("fafed", {}, (3, 3), (1, 2)),
    ("comparfrefl", {}, (1, TOP), (1, 1)),
    ("comparfrefl", {"compressor": "identity"}, (1, 1), (1, 1)),
    ("comparfrefl", {"compressor": "sign"}, (1, SIGN), (1, 1)),
    ("comparfrefl", {"compressor": "qsgd-contractive:4"}, (1, QSGD), (1, 1)),
    ("comparfrefl", {"compressor": "rotated:2"}, (1, ROTATED), (1, 1)),
    ("scafcom", {}, (2, TOP), (0, 0)),
    ("scafcom", {"start": "gradients"}, (2, TOP), (1, 1)),
    ("scallion", {}, (2, RAND), (0, 0)),
    ("scallion", {"compressor": "qsgd:4"}, (2, QSGD), (0, 0)),
    ("fed_ef_sgd", {}, (1, TOP), (0, 0)),
    ("fed_ef_ams", {}, (1, TOP), (0, 0)),
    ("local_sgd_c", {}, (1, TOP), (0, 0)),
    ("adamasfl", {}, (2, 2), (1, 1)),
    ("masfl", {}, (2, 1), (1, 1)),
    ("fedbuff", {"weight": "sqrt"}, (1, 1), (0, 0)),
    ("fedbuff", {"weight": "one"}, (1, 1), (0, 0)),
    ("ca2fl", {}, (1, 1), (0, 0)),
    ("defedavg_niid", {}, (1, 1), (0, 0)),
    ("fadas", {"delay": "plain"}, (1, 1), (0, 0)),
    ("fadas", {"delay": "adaptive"}, (1, 1), (0, 0)),
    ("fedmuon_server", {}, (1, 1), (0, 0)),
    ("local_muon", {"momentum": "reset"}, (1, 1), (0, 0)),
    ("local_muon", {"momentum": "kept"}, (1, 1), (0, 0)),
    ("local_muon", {"momentum": "aggregated"}, (2, 2), (0, 0)),
    ("fedmuon", {"over": "all"}, (2, 2), (0, 0)),
    ("fedmuon", {"over": "sampled"}, (2, 2), (0, 0)),
    ("fedmuon_liu", {}, (3, 2), (0, 0)),
    ("muloco", {}, (1, 1), (0, 0)),
    ("fedadamw", {}, (2 + 2 * 32 * ONE, 1 + 32 * ONE), (0, 0)),  # one tensor, and the steps so far
    ("fedadamw", {"moments": "reset"}, (1, 1), (0, 0)),
    ("fedadamw", {"moments": "kept"}, (1, 1), (0, 0)),
    ("fedacg", {}, (1, 1), (0, 0)),
    ("fedsmoo", {}, (2, 2), (0, 0)),
    ("local_prodigy", {}, (1, 1), (0, 0)),
    ("local_dog", {}, (1, 1), (0, 0)),
    ("local_schedule_free", {}, (1, 1), (0, 0)),
    ("server_dog", {}, (1, 1), (0, 0)),
]


def vectors_per_client(step: Step, clients: int) -> tuple[float, float]:
    """(down, up) in numbers of 64 bits, over d and the clients that should have taken part."""
    one_vector = 64 * PROBLEM.d * clients
    total = {"down": 0.0, "up": 0.0}
    for traffic in step.traffic:
        assert traffic.messages == clients
        total[traffic.direction] += traffic.bits / one_vector
    return total["down"], total["up"]


@pytest.mark.parametrize(("name", "options", "per_round", "per_opening"), COSTS)
def test_traffic(
    name: str,
    options: dict[str, object],
    per_round: tuple[float, float],
    per_opening: tuple[float, float],
) -> None:
    opening, *rounds = simulate(build(name, SYS, options), PROBLEM).steps
    assert opening.t == -1
    assert vectors_per_client(opening, SYS.N) == per_opening
    assert [step.t for step in rounds] == list(range(SYS.T))
    for step in rounds:
        assert vectors_per_client(step, SYS.S) == pytest.approx(per_round, rel=1e-14)


def test_every_algorithm_has_its_cost() -> None:
    assert {name for name, *_ in COSTS} == set(METHODS)


def test_a_zero_opening_sends_nothing() -> None:
    opening, *_ = simulate(build("padamfed", SYS), PROBLEM, "zero").steps
    assert (opening.t, opening.traffic, opening.samples) == (-1, (), 0)


def test_local_sgd_c_with_all_clients_sends_no_model() -> None:
    everyone = SYS._replace(S=SYS.N)
    opening, *rounds = simulate(build("local_sgd_c", everyone), PROBLEM).steps
    assert opening.traffic == ()
    for step in rounds:  # the download also contains the step it corrects
        assert vectors_per_client(step, SYS.N) == pytest.approx((TOP + 32 * ONE, TOP), rel=1e-14)


@pytest.mark.parametrize(("options", "vectors"), [({}, 1), ({"compressor": "top:0.05"}, 2)])
def test_polarfl_sends_one_step_for_each_tensor(options: dict[str, object], vectors: int) -> None:
    """A client stores m_i, c_i too if its uploads are compressed, and whether it is known."""
    algo = build("polarfl", SYS, options, shapes=((2, 1), (), (2,)))
    trace = simulate(algo, PROBLEM)
    up = 3 * 64 + 1 + 1 if options else 64 * PROBLEM.d  # one number of each, and which of two
    up += 32  # whether it is the first time
    for step in trace.steps[1:]:
        expected = (1 + 4 * 32 * ONE, up * ONE)
        assert vectors_per_client(step, SYS.S) == pytest.approx(expected, rel=1e-14)
    for client in range(SYS.N):
        *stored, known = trace.fleet.states[client]
        assert sum(v.numel() for v in stored) == vectors * PROBLEM.d
        assert known in (0.0, 1.0)


@pytest.mark.parametrize(
    ("compressor", "values"),
    [("top:0.4", 2 * 64), ("rand:0.4", 2 * 64), ("sign", 64 + 5), ("rotated:1", 64 + 32 + 5)],
)
def test_the_papers_count_leaves_positions_out(compressor: str, values: int) -> None:
    _, *rounds = simulate(build("comparfrefl", SYS, {"compressor": compressor}), PROBLEM).steps
    for step in rounds:
        down, up = step.traffic
        assert down.value_bits == down.bits == SYS.S * 64 * PROBLEM.d
        assert up.value_bits == SYS.S * values
        assert up.bits >= up.value_bits
