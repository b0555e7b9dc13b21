"""Sums in a simulation: the same integers as behind masks, and what cannot be summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import tunefree
from tests.blobs import blobs
from tunefree.core import Reply, System, bind
from tunefree.errors import ConfigError
from tunefree.fleet.job import Done, Job
from tunefree.fleet.summed import ZERO, Form, Summed, integers, largest
from tunefree.methods import FedAvg, PAdaMFed, PolarFL
from tunefree.methods.control import Up
from tunefree.methods.polarfl import Up as PolarUp
from tunefree.secure.arithmetic import from_integers

SYS = System(N=6, S=4, K=2, T=20)
LIKE = torch.zeros(5)
JOBS = [Job(i, 0, "round", 0, None) for i in range(4)]


class Given:
    """A fleet that gives these replies."""

    states: Any = None

    def __init__(self, done: Sequence[Done]) -> None:
        self.done = done

    def work(self, jobs: Sequence[Job]) -> Sequence[Done]:
        return self.done

    def close(self) -> None: ...


def replies(scale: float = 1.0) -> list[Done]:
    rng = np.random.default_rng(0)
    made = []
    for job in JOBS:
        delta, dc = torch.from_numpy(rng.normal(size=(2, 5))).float()
        made.append(Done(job.key, Up(delta / delta.norm(), scale * dc), 10, 2))
    return made


def summed(done: Sequence[Done]) -> list[Done]:
    algo = bind(PAdaMFed(), SYS)
    return list(Summed(Given(done), algo, LIKE).work(JOBS))


@pytest.mark.parametrize("scale", [1e-20, 1.0, 3e15])
def test_every_reply_is_the_mean(scale: float) -> None:
    done = replies(scale)
    means = summed(done)
    assert [each.key for each in means] == [job.key for job in JOBS]
    for k in range(2):
        exact = np.mean([each.up[k].double().numpy() for each in done], axis=0)
        atol = 2**-28 * (1 if k == 0 else scale * 4)
        for each in means:
            np.testing.assert_allclose(each.up[k], exact, atol=atol, rtol=1e-6)
    assert all(each.n == 1 and each.beside[0] == 3 for each in means)


def test_exponents_and_bounds() -> None:
    form = Form.of(bind(PAdaMFed(), SYS), JOBS[0], LIKE)
    up = Up(LIKE, torch.tensor([0.0, -3.0, 1.0, 0.0, 0.0]))
    assert form.exponents(up) == (0, 2)
    assert form.exponents(Up(LIKE, LIKE)) == (0, ZERO)
    assert largest([(0, 2), (0, ZERO), (0, -5)]) == (0, 2)
    terms = form.terms(4)
    assert terms.counts == (5, 5)
    assert terms.bounds == (1.0, 1.0)
    _, back = from_integers(integers(form.values(up), (0, 2), terms), terms)
    np.testing.assert_allclose(4 * back, up.dc, atol=1e-7)


def test_what_cannot_be_used_is_in_no_sum() -> None:
    done = replies()
    bad = done[1]._replace(up=Up(2 * done[1].up.delta, done[1].up.dc))
    lost = done[2]._replace(up=None, fault="gone")
    few = summed([done[0], bad, lost, done[3]])
    assert few[1].fault == "`delta` has norm 2; the method gives at most 1"
    assert few[2].fault == "gone"
    assert few[0].fault == "2 clients are too few for a secure sum, which needs 3"
    three = summed([done[0], bad, done[2], done[3]])
    assert [bool(each.fault) for each in three] == [False, True, False, False]
    exact = sum(done[i].up.dc.double() for i in (0, 2, 3)) / 3
    torch.testing.assert_close(three[0].up.dc.double(), exact, rtol=1e-6, atol=1e-7)


def test_polarfl_counts_newcomers_whole_by_their_mean_alone() -> None:
    """With β < 1: u_i = d_i - g of a first time."""
    algo = replace(bind(PolarFL(newcomers="whole"), SYS), shapes=((5,),))
    rng = np.random.default_rng(1)
    c, g, *ds = torch.from_numpy(rng.normal(size=(5, 5))).float()
    s = algo.server(LIKE + 1)._replace(c=c, g=g, known=0.5, t=30)
    assert algo.pace(30, s.R).beta < 1
    ups = [PolarUp(d, float(i == 0)) for i, d in enumerate(ds)]
    mean = PolarUp(sum(ds) / 3, 1 / 3)
    after = algo.aggregate(s, [Reply(i, 1, 0, up) for i, up in enumerate(ups)])
    meant = algo.aggregate(s, [Reply(i, 1, 0, mean) for i in range(3)])
    expected = c + g / 2 + (sum(ds) - g) / 3
    for each in (after, meant):
        torch.testing.assert_close(each.g, expected)
        assert each.known == pytest.approx(0.5 + 1 / 6)


@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_every_fleet_has_the_same_bits_and_they_are_those_of_a_sum() -> None:
    def run(fleet: Any, secure: bool = True) -> str:
        torch.manual_seed(0)
        usual: dict[str, Any] = {
            "rounds": 3,
            "local_steps": 2,
            "algorithm": "parfrefl",
            "per_round": 4,
        }
        where: dict[str, Any] = {"fleet": fleet, "workers": 2, "progress": False}
        model = torch.nn.Linear(4, 3)
        return tunefree.train(model, blobs(), secure=secure, **usual, **where).theta_sha256

    assert run("serial") == run("pool") != run("serial", secure=False)


def test_noise_is_added_to_the_sum() -> None:
    """The same noise as without secure sums, on the same sum but for its rounding."""

    def run(secure: bool) -> torch.Tensor:
        torch.manual_seed(0)
        promise = tunefree.Privacy(epsilon=8, participations=3)
        return tunefree.train(
            torch.nn.Linear(4, 3),
            blobs(),
            privacy=promise,
            secure=secure,
            rounds=3,
            per_round=4,
            local_steps=2,
            progress=False,
        ).theta

    torch.testing.assert_close(run(True), run(False), rtol=1e-5, atol=1e-6)
    assert not torch.equal(run(True), run(False))


def test_what_would_have_to_be_cut_behind_a_mask_is_refused() -> None:
    with pytest.raises(ConfigError, match="uploads of FedAvg would have to be cut on the clients"):
        tunefree.train(
            torch.nn.Linear(4, 3),
            blobs(),
            algorithm=FedAvg(eta=0.1),
            privacy=tunefree.Privacy(epsilon=8, participations=3),
            secure=True,
            rounds=3,
            per_round=4,
            progress=False,
        )
