"""The buffered schedule written naively: every job is computed when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tunefree.core import Algorithm, Client, Reply, Server, stream
from tunefree.fleet.job import Job
from tunefree.schedule.delays import Delays
from tunefree.testing import Problem, QuadraticOracle


class Moment(NamedTuple):
    """The server and all N clients after aggregation t, and what it used."""

    time: float
    used: list[tuple[int, int]]  # (client, step of its download)
    server: Server
    clients: list[Client]


def eager(
    algo: Algorithm,
    problem: Problem,
    concurrency: int,
    dispatch: str,
    delays: Delays,
    dropout: float,
    timeout: float,
) -> Iterator[Moment]:
    """Only for algorithms without an opening."""
    (N, S, _, T), seed = algo.sys, problem.seed
    theta0 = torch.from_numpy(problem.theta0)
    server, clients = algo.server(theta0), [algo.client(theta0) for _ in range(N)]
    (exchange,) = algo.round()
    now, t, number = 0.0, 0, 0
    jobs: list[dict[str, Any]] = []  # all in flight: running, waiting to start, or in the buffer
    started = [0] * N

    def choose(among: list[int], count: int, *name: Any) -> list[int]:
        places = stream(seed, *name).choice(len(among), count, replace=False)
        return sorted(among[place] for place in places)

    def idle() -> list[int]:
        return [i for i in range(N) if all(job["client"] != i for job in jobs)]

    def give(i: int) -> None:
        nonlocal number
        job = {"client": i, "t": t, "number": number, "state": "waiting"}
        jobs.append(job | {"down": exchange.down(server)})
        number += 1
        start()

    def start() -> None:
        """Every idle client takes its oldest job, and does it at once."""
        for job in jobs:
            i = job["client"]
            if job["state"] != "waiting" or any(
                other["client"] == i and other["state"] != "waiting" for other in jobs
            ):
                continue
            seconds = delays.duration(seed, i, started[i])
            started[i] += 1
            drop = stream(seed, "dropout", job["number"]).random() < dropout
            job["lost"] = drop or seconds > timeout
            job["ends"] = now + (timeout if job["lost"] else seconds)
            F = QuadraticOracle(problem, Job(i, job["t"], "round", 0, None))
            job["new"], job["up"] = exchange.work(clients[i], job["down"], F)
            job["state"] = "running"

    for i in choose(list(range(N)), concurrency, "cohort", 0):
        give(i)
    while t < T:
        job = min(
            (job for job in jobs if job["state"] == "running"),
            key=lambda job: (job["ends"], job["number"]),
        )
        now = job["ends"]
        if job["lost"]:
            jobs.remove(job)
            start()
            give(*choose(idle(), 1, "refill", number))
            continue
        job["state"] = "buffered"
        buffer = [job for job in jobs if job["state"] == "buffered"]
        if len(buffer) == S:
            buffer.sort(key=lambda job: job["client"])
            server = exchange.up(
                server, [Reply(job["client"], 1, t - job["t"], job["up"]) for job in buffer]
            )
            for job in buffer:
                clients[job["client"]] = job["new"]
                jobs.remove(job)
            yield Moment(now, [(j["client"], j["t"]) for j in buffer], server, list(clients))
            t += 1
            start()
        if dispatch == "immediate":
            give(*choose(idle(), 1, "refill", number))
        elif len(buffer) == S:
            among = idle() if dispatch == "flush" else list(range(N))
            for i in choose(among, S, "cohort", t):
                give(i)
