"""Private runs: what they promise, that they resume bit for bit, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tunefree
from tests.problem import simulate
from tests.shaped import WIDE, problem_of
from tests.site.commands import commands
from tests.twins.compression import identity, per_tensor, top
from tests.twins.polarfl_stateless import polarfl_stateless
from tests.twins.test_polarfl_twin import sizes
from tests.twins.test_twins import agree
from tests.variants import METHODS
from tunefree import methods
from tunefree.cli import main, parser
from tunefree.core import System, about, bind, stream
from tunefree.errors import ConfigError
from tunefree.fleet.serial import Serial
from tunefree.methods.registry import build
from tunefree.privacy.clipping import FIRST, split_noise
from tunefree.privacy.coins import Coins, Turns, turns
from tunefree.privacy.leaves import FREE, OF_RECORDS, PRIVATE, REFUSED, refuse
from tunefree.privacy.noise import seeded
from tunefree.privacy.promise import Privacy
from tunefree.privacy.release import NoisyMean, bound_of, simulated
from tunefree.record.summary import PROMISE
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.schedule.clock import VirtualClock
from tunefree.schedule.simulate import play
from tunefree.settings import Schedule, Settings
from tunefree.testing import QuadraticOracle, quadratic

pytest.importorskip("dp_accounting")
EPSILON = Privacy(epsilon=20)
SYS = System(N=12, S=6, K=2, T=8)


def blobs(clients: int = 12) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(clients, 10, 4, generator=rng)
    return [(each, (each[:, 0] > 0).long()) for each in x]


def private(**more: Any) -> tunefree.Run:
    usual = {"privacy": EPSILON, "rounds": 8, "per_round": 6, "local_steps": 2}
    torch.manual_seed(0)
    settings: Any = {**usual, "eval_every": 4, "fleet": "serial", "progress": False, **more}
    clients = settings.pop("clients", blobs())
    return tunefree.Run(nn.Linear(4, 2), clients, blobs()[0], **settings)


FEDAVG = {"algorithm": methods.FedAvg(eta=0.3), "privacy": Privacy(200, participations=4)}
CLIPPED = {"algorithm": methods.FedAvgM(eta=0.3), "privacy": Privacy(epsilon=20, clip=0.1)}
IN_TURN = {"privacy": Privacy(epsilon=20, participations=4)}
every_kind = pytest.mark.parametrize(
    "kind", [{}, FEDAVG, CLIPPED, IN_TURN], ids=["own", "adaptive", "clip", "in turn"]
)


def test_it_says_what_it_promises() -> None:
    run = private().finish()
    rows = run.history
    assert rows[0]["epsilon"] == 0  # before the first round
    assert 19.9 < rows[-1]["epsilon"] <= 20
    assert 0 < rows[4]["epsilon"] < 20
    facts = run.record.facts()
    assert (facts.privacy["q"], facts.privacy["limit"]) == (0.5, 8)
    assert facts.privacy["trust"] == "simulated: no guarantee"
    assert "privacy: epsilon 20 at delta 1e-05 for every client; noise" in run.summary()
    assert about(run.algo).title == "PolarFL, stateless"
    assert getattr(run.algo, "sigma") == facts.privacy["sigma"]  # noqa: B009


@every_kind
def test_its_noise_is_the_promised_one(kind: dict[str, Any]) -> None:
    """Of a round in which nobody came, in units of the largest upload's share."""
    run = private(**kind)
    sigma = run.record.facts().privacy["sigma"]
    assert run._private is not None
    release: Any = run._private({})
    mean = release(0, run.algo.round()[0].Up, [], torch.zeros(100_000)).up[0]
    adaptive = "algorithm" in kind and kind["privacy"].clip is None
    expected = split_noise(sigma, 6).vectors * FIRST if adaptive else sigma * release.threshold
    assert float(mean.std()) == pytest.approx(expected / 6, rel=0.02)
    budget = kind.get("privacy", EPSILON).epsilon
    assert release.scores(8, due=True)["epsilon"] == pytest.approx(budget, rel=1e-3)


@pytest.mark.parametrize("kind", [{}, IN_TURN], ids=["coins", "in turn"])
def test_the_report_and_show_state_the_promise(
    kind: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.sqlite"
    private(out=path, **kind).finish()
    private(out=tmp_path / "seed.sqlite", seed=1, **kind).finish()
    private(out=tmp_path / "plain.sqlite", privacy=None, algorithm="polarfl").finish()
    rows = content(find([tmp_path]).runs)["privacy"]
    assert {row[0] for row in rows} == {"PolarFL, stateless"}
    said = {part: words for _, part, words in rows}
    assert len(said) == len(rows) == 2 + len(PROMISE)  # both seeds promise the same
    assert (said["epsilon spent"], said["epsilon at most"], said["unit"]) == ("20", "20", "client")
    coins = not kind
    assert ("one client added or removed" in said["neighbours"]) == coins
    assert re.search(r"coin of 0\.5$" if coins else r"^a client 4 times", said["who takes part"])
    package = "dp-accounting" if coins else "tunefree"
    assert said["accountant"].endswith(f"{package} {metadata.version(package)}")
    assert said["trust"] == "simulated: no guarantee"
    assert ("whoever reads the run file" in said["not covered"]) == coins
    assert "the server, which sees uploads as they are" in said["not covered"]
    assert main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(f"  privacy, {part}: {words}\n" in shown for part, words in said.items())


def test_nothing_is_computed_on_clients_data() -> None:
    run = private().finish()
    assert not any("train_loss" in row for row in run.history)
    assert run.record.facts().label_counts == []


@every_kind
def test_the_seed_decides_everything(kind: dict[str, Any]) -> None:
    one, same, other = (private(seed=seed, **kind).finish() for seed in (1, 1, 2))
    assert one.theta_sha256 == same.theta_sha256 != other.theta_sha256


@every_kind
def test_it_continues_bit_for_bit(kind: dict[str, Any], tmp_path: Path) -> None:
    whole = private(**kind).finish()
    parts = private(**kind)
    for _ in islice(parts, 4):
        pass
    assert parts.finish().theta_sha256 == whole.theta_sha256
    path = tmp_path / "run.sqlite"
    for _ in islice(private(out=path, **kind), 4):
        pass
    torch.manual_seed(0)
    again = tunefree.resume(path, nn.Linear(4, 2), blobs(), blobs()[0], progress=False)
    assert again.theta_sha256 == whole.theta_sha256
    assert again.history[-1]["epsilon"] == whole.history[-1]["epsilon"]
    assert [row.get("clip") for row in again.history] == [row.get("clip") for row in whole.history]


def test_the_fleet_does_not_matter() -> None:
    pool = private(fleet="pool", workers=2).finish()
    assert pool.theta_sha256 == private().finish().theta_sha256


def test_more_rounds_than_the_budget_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    private(out=path).finish()
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=r"rounds = 9 would spend epsilon = 2\d.\d with"):
        tunefree.resume(path, nn.Linear(4, 2), blobs(), blobs()[0], rounds=9, progress=False)


def test_coins_fall_for_each_client_alone() -> None:
    coins = Coins(bind(methods.PolarFLStateless(), System(N=200, S=20, K=1, T=1)), seed=3)
    cohorts = [coins.cohort(t) for t in range(300)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert sizes.mean() == pytest.approx(20, abs=1)
    assert sizes.var() == pytest.approx(200 * 0.1 * 0.9, rel=0.25)  # a fixed size has none
    assert cohorts[0] == sorted(cohorts[0]) != cohorts[1]
    together = np.mean([(0 in cohort) and (1 in cohort) for cohort in cohorts])
    assert together < 0.05


@pytest.mark.parametrize(("N", "S"), [(10, 3), (10, 10), (7, 1), (6, 3)])
def test_in_turn_nobody_comes_too_often(N: int, S: int) -> None:
    members = Turns(bind(methods.PolarFLStateless(), System(N, S, 1, 1)), seed=0)
    came = np.zeros(N)
    for t in range(25):
        cohort = members.cohort(t)
        assert len(set(cohort)) == S
        came[cohort] += 1
        assert came.max() <= turns(t + 1, N, S)


class NoNoise:
    """A sum without noise, whose vectors were in the unit ball."""

    def __call__(
        self, t: int, vectors: Sequence[torch.Tensor], size: int, clients: Sequence[int]
    ) -> Any:
        total = np.zeros(size)
        for v in vectors:
            total += v.double().numpy()
        return total


GROWING = ("local_prodigy", "local_dog", "server_dog")  # from nothing: six rounds move nobody

ALLOWED = [
    name
    for name, cls in METHODS.items()
    if cls.about.weights == "mean" and name not in ("fafed", "mime", "fedadamw", *GROWING)
]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_uses_uploads_through_their_mean(name: str) -> None:
    """A noiseless release of everybody's uploads changes nothing."""
    sys, problem = System(N=5, S=5, K=2, T=6), quadratic(N=5)
    algo = build(name, sys)
    refuse(algo, Settings(algorithm=name, epsilon=1.0))
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: QuadraticOracle(problem, job))
    members, clock = Coins(algo, problem.seed), VirtualClock(None, 0)
    release = NoisyMean(NoNoise(), 1.0, sys.S, bound=1e6)
    steps = list(play(fleet, members, clock, theta0, Schedule(), release=release))
    plain = simulate(algo, problem)
    assert not np.allclose(plain.thetas[-1], plain.thetas[0], rtol=1e-2)
    np.testing.assert_allclose(steps[-1].server.theta, plain.thetas[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["", "top:0.4"])
def test_the_stateless_method_with_noise_is_its_page(spec: str) -> None:
    sys, sigma = System(N=7, S=3, K=4, T=30), 0.7
    problem = problem_of(sys, WIDE)
    algo = build("polarfl_stateless", sys, {"compressor": spec} if spec else {}, shapes=WIDE)
    algo = replace(algo, sigma=sigma)  # type: ignore[call-arg]
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: QuadraticOracle(problem, job))
    assert bound_of(algo, None) == 1
    release = NoisyMean(simulated(3, sigma), sigma, sys.S, bound=1.0)
    members = Coins(algo, 3)
    steps = list(play(fleet, members, VirtualClock(None, 0), theta0, Schedule(), release=release))
    uploads = [[(client, step.t) for client in step.clients] for step in steps[1:]]
    assert min(map(len, uploads)) == 0 < max(map(len, uploads))  # nobody came, and noise was used
    C = per_tensor(top(0.4), sizes(WIDE)) if spec else identity
    noises = [sigma * seeded(3, t, problem.d).astype(np.float64) for t in range(sys.T)]
    page = polarfl_stateless(problem, uploads, sys.K, WIDE, C, sigma=sigma, noises=noises, S=sys.S)
    agree([step.server.theta.numpy() for step in steps], page, sys.T, atol=1e-4)


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("control variates", {"algorithm": "polarfl"}, "clients of PolarFL upload control variates"),
    ("control variates", {"algorithm": "scaffold"}, "clients of SCAFFOLD upload control variates"),
    ("more than a mean of uploads", {"algorithm": "fedexp"}, "FedExP does not declare that its"),
    ("numbers beside vectors", {"algorithm": "fedadamw"}, "clients of FedAdamW upload single"),
    ("gradients of an opening", {"algorithm": "fafed"}, "FAFED starts with a pass over all"),
    ("several uploads in a round", {"algorithm": "mime"}, "Mime needs two uploads of a client"),
    ("numbers of samples, as weights", {"weighting": "examples"}, "weighting by examples tells"),
    ("numbers of samples, as odds", {"sampling": "examples"}, "sampling by size or by weights"),
    ("numbers of samples, as steps", {"local_epochs": 2}, "with local epochs the steps"),
    ("scores on clients' data", {"grad_norm": True}, "scores that are computed on clients'"),
    ("uploads one by one", {"robust": "median"}, "a robust rule compares single uploads"),
    ("means and deviations of columns", {"standardise": True}, "standardising needs the sums"),
    (
        "parts of the model that stay with clients",
        {"local": "bias"},
        "the model that is scored and handed out has the mean",
    ),
    ("when a buffered client answers", {"schedule": "buffered"}, "in the buffered schedule a"),
    (
        "losses of batches",
        {"privacy": Privacy(8, "record"), "algorithm": "fedsps"},
        "clients of FedSPS use the loss",
    ),
    (
        "gradients that are cut or collected",
        {"privacy": Privacy(8, "record"), "accumulate": 2},
        "the gradient of every record is",
    ),
    (
        "weights of records",
        {
            "privacy": Privacy(8, "record"),
            "loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0])),
        },
        "the gradient of every record is brought to one length",
    ),
    (
        "the order of a sampler",
        {
            "privacy": Privacy(8, "record"),
            "clients": [
                DataLoader(TensorDataset(*pair), 4, shuffle=True, drop_last=True)
                for pair in blobs()
            ],
            "batch_size": 4,
        },
        "a coin decides which records are in a batch",
    ),
]


@pytest.mark.parametrize(("what", "settings", "says"), CASES, ids=[row[0] for row in CASES])
def test_what_would_leave_is_refused(what: str, settings: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {} if "local_epochs" not in settings else {"local_steps": None}
    with pytest.raises(ConfigError, match=rf"epsilon = \d+.0 cannot be promised: {says}"):
        private(**usual, **settings)


def test_every_refusal_is_tested_and_every_line_has_a_reason() -> None:
    assert [*dict.fromkeys(row[0] for row in CASES)] == [each.what for each in REFUSED]
    assert all(each.reason and each.remedy for each in REFUSED)
    assert all({**PRIVATE, **FREE, **OF_RECORDS}.values())


FATES = ("private", "refused", "free")
PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile("".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "page", "exec"), {})
    spent, *prices = map(float, capsys.readouterr().out.split())
    assert 7.99 < spent <= 8
    said = re.findall(r"^print.*: (\d\.\d\d)$", PAGE, re.MULTILINE)
    assert prices == list(map(float, said))
    assert len(prices) == 3


def test_the_commands_of_the_page_can_be_typed() -> None:
    typed = commands(PAGE)
    assert len(typed) == 7
    for command in typed:
        parser().parse_args(shlex.split(command)[1:])


def test_the_page_has_this_list() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert [row[:2] for row in rows if len(row) == 3 and row[1] in FATES] == [
        *([what, "private"] for what in PRIVATE),
        *([each.what, "refused"] for each in REFUSED if each.unit != "record"),
        *([what, "free"] for what in FREE),
        *([what, "private"] for what in OF_RECORDS),
        *([each.what, "refused"] for each in REFUSED if each.unit == "record"),
    ]
    said = [row[2] for row in rows if len(row) == 3 and row[1] in FATES]
    assert {*PRIVATE.values(), *FREE.values(), *OF_RECORDS.values()} <= {*said}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"privacy": 8}, r"privacy = 8 is no promise; write tunefree.Privacy\(epsilon=8\)"),
        (
            {"clip": 1.0},
            r"no argument 'clip'; it belongs to privacy: .*Privacy\(epsilon=8, clip=1.0\)",
        ),
        ({"epsilon": 8}, r"no argument 'epsilon'; it belongs to privacy: .*Privacy\(epsilon=8\)"),
        (
            {"privacy": Privacy(8, participations=3)},
            "participations = 3 is too small: 8 rounds of 6 of 12 clients ask each 4 times; raise",
        ),
        (
            {**FEDAVG, "privacy": Privacy(0.5)},
            "the median norm cannot be followed privately",
        ),
    ],
)
def test_what_is_wrong_is_said(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        private(**settings)


def test_the_settings_without_epsilon_are_refused() -> None:
    with pytest.raises(ConfigError, match="clip = 0.5 belongs to privacy; give epsilon too"):
        Privacy.of(Settings(clip=0.5))
    assert Privacy.of(Settings()) is None
    given = Privacy(3, delta=1e-6, clip=2, participations=4)
    assert Privacy.of(Settings(**given.as_settings())) == given


SMALL = "--clients 12 --per-round 6 --rounds 4 --local-steps 1 --fleet serial --eval-every 2"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sqlite"
    assert (
        main(["run", *SMALL.split(), "--epsilon", "8", "--participations", "2", "--out", str(path)])
        == 0
    )
    said = capsys.readouterr().out
    assert "PolarFL, stateless" in said
    assert "epsilon 8 of 8" in said
    toml = tmp_path / "run.toml"
    toml.write_text("epsilon = 8.0\nparticipations = 2\n")
    other = tmp_path / "other.sqlite"
    words = ["run", str(toml), *SMALL.split(), "--out", str(other), "--format", "json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["theta_sha256"][:12] in said
    assert main(["run", *SMALL.split(), "--clip", "1", "--out", str(tmp_path / "no")]) == 2
    assert "--clip 1.0 belongs to privacy; give --epsilon too" in capsys.readouterr().err


def test_noise_is_drawn_anew_every_round() -> None:
    assert stream(0, "x").random() == stream(0, "x").random()
    drawn = [seeded(0, t, 1000) for t in range(3)]
    assert abs(float(drawn[0] @ drawn[1])) / 1000 < 0.15
