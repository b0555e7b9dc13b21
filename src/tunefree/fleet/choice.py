"""Which fleet a run is simulated on."""

from __future__ import annotations

import time

from tunefree.config import FleetName
from tunefree.core import Algorithm, System
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet, Job
from tunefree.fleet.pool import Pool, cores
from tunefree.fleet.serial import Serial
from tunefree.fleet.states import States
from tunefree.fleet.work import DataClients

POOL_SECONDS = 10  # of local steps, below which starting processes is not worth it


def choose(name: FleetName, clients: DataClients, sys: System) -> FleetName:
    """The fleet to use; `auto` is what is quicker."""
    device = clients.objective.device
    if name == "auto":
        return "pool" if pool_pays(clients, sys) else "serial"
    if name != "serial" and device.type != "cpu":
        raise ConfigError(f"run.fleet = {name!r} works on the cpu, not on {device}; use 'serial'")
    return name


def start(
    name: FleetName, algo: Algorithm, clients: DataClients, workers: int, states: States
) -> Fleet:
    """The fleet of that name, at work."""
    theta0 = clients.objective.theta0
    if name == "serial":
        return Serial(algo, theta0, clients, states)
    if name == "pool":
        return Pool(algo, theta0, clients, workers or None, states)
    try:
        from tunefree.fleet.ray import Ray
    except ImportError as error:
        raise ConfigError(
            f"run.fleet = 'ray' needs Ray ({error}); install it: pip install 'tunefree[ray]'"
        ) from error
    return Ray(algo, theta0, clients, workers or None, states)


def pool_pays(clients: DataClients, sys: System) -> bool:
    """Whether the local steps of all rounds take long enough for worker processes to help."""
    if cores() < 2 or sys.S < 2 or clients.objective.device.type != "cpu":
        return False
    F = clients(Job(0, -1, "round", 0, None))
    theta, xi = clients.objective.theta0, F.draw()
    F.grad(theta, xi)
    began = time.perf_counter()
    F.grad(theta, xi)
    return sys.T * sys.S * sys.K * (time.perf_counter() - began) > POOL_SECONDS
