"""Which fleet a run is simulated on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from tunefree.core import Algorithm, System
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet, Job
from tunefree.fleet.pool import Pool, cores
from tunefree.fleet.process import lacking
from tunefree.fleet.serial import Serial
from tunefree.fleet.states import States
from tunefree.fleet.work import DataClients
from tunefree.models.objective import one_thread
from tunefree.settings import FleetName

START_SECONDS = 3.0  # until a pool's processes are ready
JOB_SECONDS = 1e-3  # to send a job and receive its reply
LEAST_SECONDS = 10.0  # of local steps, below which a pool never pays
SAVED = 0.25  # share of the time that a pool must save
TIMED, ENOUGH_SECONDS = 7, 1.0  # gradients to time, or fewer after this long


def choose(name: FleetName, clients: DataClients, sys: System) -> FleetName:
    """The fleet to use; `auto` is the faster of serial and pool."""
    device = clients.objective.device
    if name == "auto":
        name = "pool" if pool_pays(clients, sys) else "serial"
    if name == "pool" and (why := lacking()):
        warnings.warn(
            f"{why}, so there is no pool of workers: clients are trained one after the other, with "
            "the same results",
            stacklevel=2,
        )
        return "serial"
    if name == "ray":
        ray_fleet()
    if name != "serial" and str(device) not in ("cpu", *["cuda"] * (name == "pool")):
        raise ConfigError(f"does not run on {device}", "use 'serial'", setting="fleet", value=name)
    return name


def start(
    name: FleetName, algo: Algorithm, clients: DataClients, workers: int, states: States
) -> Fleet:
    """The fleet of that name, started."""
    theta0 = clients.objective.theta0
    if name == "serial":
        return Serial(algo, theta0, clients, states)
    if name == "pool":
        return Pool(algo, theta0, clients, workers or None, states)
    return ray_fleet()(algo, theta0, clients, workers or None, states)


def ray_fleet() -> Callable[..., Fleet]:
    """The fleet of Ray, which is optional."""
    try:
        from tunefree.fleet.ray import Ray
    except ImportError as error:
        raise ConfigError(
            f"fleet = 'ray' needs Ray ({error}); install it: pip install 'tunefree[ray]'"
        ) from error
    return Ray


def pool_pays(clients: DataClients, sys: System) -> bool:
    """Whether the local steps of all rounds take long enough for worker processes to help."""
    if cores() < 2 or sys.S < 2 or clients.objective.device.type != "cpu":
        return False
    F = clients(Job(0, -1, "round", 0, None))
    theta, xi = clients.objective.theta0, F.draw()
    with one_thread():  # as in training
        return pays(shortest(lambda: F.grad(theta, xi)), sys, cores())


def pays(gradient_seconds: float, sys: System, workers: int) -> bool:
    """Whether a pool is clearly faster than one process, start-up included.

    >>> sys = System(N=50, S=10, K=10, T=400)
    >>> pays(1e-4, sys, workers=8), pays(1e-3, sys, workers=8), pays(1e-3, sys, workers=1)
    (False, True, False)
    """
    alone = sys.T * sys.S * sys.K * gradient_seconds
    together = START_SECONDS + sys.T * sys.S * JOB_SECONDS + alone / min(workers, sys.S)
    return alone > LEAST_SECONDS and together < (1 - SAVED) * alone


def shortest(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest of a few times: other load on the machine only makes them longer.

    The first ones warm up. If the choice is close, both fleets take about as long.
    """
    started, times = clock(), list[float]()
    while len(times) < TIMED and (len(times) < 2 or clock() - started < ENOUGH_SECONDS):
        before = clock()
        work()
        times.append(clock() - before)
    return min(times)
