"""Worker processes change nothing but the speed: same bits, failures named, deaths survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.problem import simulate
from tests.variants import METHODS
from tunefree.core import Algorithm, Oracle, System, Vec
from tunefree.errors import FleetError
from tunefree.fleet.distribute import TRIES
from tunefree.fleet.job import Job
from tunefree.fleet.pool import Pool, PoolWorker
from tunefree.methods.registry import build
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate as steps_of
from tunefree.testing import Problem, QuadraticOracle, quadratic

SYS = System(N=7, S=3, K=3, T=12)


def of(problem: Problem) -> Callable[[Job], Oracle]:
    return lambda job: QuadraticOracle(problem, job)


def run(pool: Pool, algo: Algorithm, problem: Problem) -> list[Step]:
    theta0 = torch.from_numpy(problem.theta0)
    return list(steps_of(algo, pool, theta0, problem.seed))


@pytest.fixture
def pools() -> Iterator[Callable[..., Pool]]:
    opened: list[Pool] = []

    def make(algo: Algorithm, oracle_of: Callable[[Job], Oracle], workers: int = 2) -> Pool:
        opened.append(Pool(algo, torch.from_numpy(quadratic().theta0), oracle_of, workers))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()


def same_as_serial(name: str, workers: int, pools: Callable[..., Pool]) -> None:
    problem, algo = quadratic(), build(name, SYS, shapes=((2, 2), ()))
    steps = run(pools(algo, of(problem), workers), algo, problem)
    for step, expected in zip(steps, simulate(algo, problem).steps, strict=True):
        assert step.traffic == expected.traffic
        for mine, theirs in zip(step.server, expected.server, strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))


@pytest.mark.parametrize(("name", "workers"), [("padamfed", 1), ("padamfed_vr", 3), ("polarfl", 2)])
def test_same_bits_as_serial(name: str, workers: int, pools: Callable[..., Pool]) -> None:
    same_as_serial(name, workers, pools)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_same_bits_as_serial_for_all(name: str, pools: Callable[..., Pool]) -> None:
    same_as_serial(name, 2, pools)


class Mortal(QuadraticOracle):
    """Kills its process until there are enough tombstones."""

    def __init__(
        self, problem: Problem, job: Job, graves: Path, deaths: int, client: int = 4
    ) -> None:
        super().__init__(problem, job)
        if job.client == client and len(list(graves.iterdir())) < deaths:
            (graves / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_replaced_and_its_job_run_again(
    tmp_path: Path, pools: Callable[..., Pool]
) -> None:
    problem, algo = quadratic(), build("padamfed", SYS)
    pool = pools(algo, lambda job: Mortal(problem, job, tmp_path, deaths=2))
    steps = run(pool, algo, problem)
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(steps[-1].server.theta, simulate(algo, problem).server.theta)


@dataclass
class Named:
    """Oracles of clients that have names."""

    oracle_of: Callable[[Job], Oracle]
    names: tuple[str, ...] = tuple(f"site {i}" for i in range(SYS.N))

    def __call__(self, job: Job) -> Oracle:
        return self.oracle_of(job)


@pytest.mark.parametrize("client", [0, 1])  # sent together
def test_a_client_that_kills_every_worker_is_named(
    client: int, tmp_path: Path, pools: Callable[..., Pool]
) -> None:
    """Not the one that was sent together with it."""
    problem, algo = quadratic(), build("padamfed", SYS)
    oracles = Named(lambda job: Mortal(problem, job, tmp_path, deaths=99, client=client))
    pool = pools(algo, oracles)
    with pytest.raises(FleetError, match=f"client site {client} killed {TRIES} worker processes"):
        run(pool, algo, problem)


@dataclass
class OnGpus:
    """Oracles of a model that is on the GPUs, as far as the pool can see."""

    oracle_of: Callable[[Job], Oracle]
    objective: Any = field(default_factory=lambda: SimpleNamespace(device=torch.device("cuda")))

    def __call__(self, job: Job) -> Oracle:
        return self.oracle_of(job)


def told(worker: PoolWorker) -> str:
    """The GPUs that a worker's process sees."""
    environ = Path(f"/proc/{worker.process.process.pid}/environ").read_bytes().split(b"\0")
    return (
        next(each for each in environ if each.startswith(b"CUDA_VIS")).partition(b"=")[2].decode()
    )


@pytest.mark.parametrize(("given", "seen"), [("", "010"), ("5,7", "575")])
def test_workers_take_gpus_in_turn(
    given: str,
    seen: str,
    tmp_path: Path,
    pools: Callable[..., Pool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that replaces another one has its GPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    problem, algo = quadratic(), build("padamfed", SYS)
    pool = pools(algo, OnGpus(lambda job: Mortal(problem, job, tmp_path, deaths=1)), 3)
    steps = run(pool, algo, problem)
    assert len(list(tmp_path.iterdir())) == 1
    assert "".join(map(told, pool.all())) == seen
    assert torch.equal(steps[-1].server.theta, simulate(algo, problem).server.theta)


class Failing(QuadraticOracle):
    def grad(self, theta: Vec, xi: object) -> Vec:
        raise RuntimeError("sensor out of range")


def test_a_failing_client_is_named_and_the_pool_continues(pools: Callable[..., Pool]) -> None:
    problem, algo = quadratic(), build("fedavg", SYS)
    bad = 2
    pool = pools(
        algo, lambda job: (Failing if job.client == bad else QuadraticOracle)(problem, job)
    )
    server = algo.server(torch.from_numpy(problem.theta0))
    down = algo.round()[0].down(server)
    with pytest.raises(FleetError, match=r"client 2 failed .* at t = 0: sensor out of range"):
        pool.work([Job(client, 0, "round", 0, down) for client in range(7)])
    done = pool.work([Job(client, 0, "round", 0, down) for client in (0, 5)])

    assert all(torch.isfinite(d.up.delta).all() for d in done)


SCRIPT = """
import torch, tunefree

class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.dense(x)

def my_loss(out, y):
    return torch.nn.functional.cross_entropy(out, y) * 2

torch.manual_seed(0)
clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
shas = {
    tunefree.train(Mine(), clients, rounds=30, local_steps=2, per_round=3, loss=my_loss, seed=s,
                   fleet=fleet, workers=2, progress=False).theta_sha256
    for fleet in ("serial", "pool") for s in [0] if torch.manual_seed(1)
}
print(len(shas))
"""


def test_a_users_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("1\n", "")
