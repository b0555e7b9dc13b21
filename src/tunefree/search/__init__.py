"""Many runs at once, each in its file: compare methods, tune step sizes, sweep a step size.

A batch that is interrupted is resumed by starting it again: finished runs are read back, unfinished
ones continue. `settings` makes the `Settings` that runs share; `compare`, `tune` and `sweep` plan
and summarise runs of their own; `plan`, `run_all` and `run_groups` do any.

>>> from tempfile import TemporaryDirectory
>>> small = settings(data="digits", clients=5, rounds=2, local_steps=1, algorithm="fedavg")
>>> with TemporaryDirectory() as folder:
...     runs = [plan(Path(folder), "fedavg", with_seed(small, seed)) for seed in (0, 1)]
...     results = run_all(runs, workers=1)
>>> [(result.run.name, result.state) for result in results]
[('fedavg, seed 0', 'done'), ('fedavg, seed 1', 'done')]
"""

from __future__ import annotations

from pathlib import Path

from tunefree import derive
from tunefree.methods import registry
from tunefree.run.keywords import named
from tunefree.schedule import simulate
from tunefree.search.batch import PlannedRun as PlannedRun
from tunefree.search.batch import Result as Result
from tunefree.search.batch import Role as Role
from tunefree.search.batch import is_finished as is_finished
from tunefree.search.batch import plan as plan
from tunefree.search.batch import run_all as run_all
from tunefree.search.batch import run_groups as run_groups
from tunefree.search.comparison import Outcome as Outcome
from tunefree.search.comparison import compare as compare
from tunefree.search.comparison import rounds_to as rounds_to
from tunefree.search.comparison import with_seed as with_seed
from tunefree.search.method_spec import MethodSpec as MethodSpec
from tunefree.search.method_spec import configure as configure
from tunefree.search.method_spec import parse_method as parse_method
from tunefree.search.method_spec import system_of
from tunefree.search.sweeping import Sweep as Sweep
from tunefree.search.sweeping import SweepPoint as SweepPoint
from tunefree.search.sweeping import sweep as sweep
from tunefree.search.sweeping import theory_of as theory_of
from tunefree.search.tuning import Grid as Grid
from tunefree.search.tuning import Point as Point
from tunefree.search.tuning import Search as Search
from tunefree.search.tuning import Trial as Trial
from tunefree.search.tuning import TuningResult as TuningResult
from tunefree.search.tuning import Value as Value
from tunefree.search.tuning import at_point as at_point
from tunefree.search.tuning import check_grid as check_grid
from tunefree.search.tuning import declared_grid as declared_grid
from tunefree.search.tuning import late_mean as late_mean
from tunefree.search.tuning import on_held_out as on_held_out
from tunefree.search.tuning import save as save
from tunefree.search.tuning import search_all as search_all
from tunefree.search.tuning import tune as tune
from tunefree.search.tuning import write_file as write_file
from tunefree.settings import Settings as Settings


def check(settings: Settings) -> None:
    """Refuse, before anything runs, a method that cannot run with these settings.

    >>> check(settings(data="digits", clients=5, schedule="buffered", concurrency=9))
    Traceback (most recent call last):
    tunefree.errors.ConfigError: concurrency = 9 is out of range; with dispatch = flush give a ...
    """
    method = registry.configure(settings, system_of(settings), None)
    simulate.check(settings.scheduling, method)


def settings(file: str | Path | None = None, **given: object) -> Settings:
    """The settings of a TOML file, and single ones by name; and what follows from their data.

    Args:
        file: As for `tunefree run`.
        given: Any settings, such as data="digits", clients=50; they come before the file's.

    >>> settings(data="digits", clients=50, rounds=100).rounds
    100
    """
    return derive.settings(None if file is None else Path(file), named(given))
