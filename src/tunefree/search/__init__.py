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
from tunefree.run.keywords import named
from tunefree.search.batch import (
    PlannedRun,
    Result,
    Role,
    is_finished,
    plan,
    run_all,
    run_groups,
)
from tunefree.search.comparison import Outcome, compare, rounds_to, with_seed
from tunefree.search.method_spec import MethodSpec, configure, parse_method
from tunefree.search.sweeping import Sweep, SweepPoint, sweep, theory_of
from tunefree.search.tuning import (
    Grid,
    Point,
    Search,
    Trial,
    TuningResult,
    Value,
    at_point,
    check_grid,
    declared_grid,
    late_mean,
    on_held_out,
    save,
    search_all,
    tune,
    write_file,
)
from tunefree.settings import Settings

__all__ = [
    "Grid",
    "MethodSpec",
    "Outcome",
    "PlannedRun",
    "Point",
    "Result",
    "Role",
    "Search",
    "Settings",
    "Sweep",
    "SweepPoint",
    "Trial",
    "TuningResult",
    "Value",
    "at_point",
    "check_grid",
    "compare",
    "configure",
    "declared_grid",
    "is_finished",
    "late_mean",
    "on_held_out",
    "parse_method",
    "plan",
    "rounds_to",
    "run_all",
    "run_groups",
    "save",
    "search_all",
    "settings",
    "sweep",
    "theory_of",
    "tune",
    "with_seed",
    "write_file",
]


def settings(file: str | Path | None = None, **given: object) -> Settings:
    """The settings of a TOML file, and single ones by name; and what follows from their data.

    Args:
        file: As for `tunefree run`.
        given: Any settings, such as data="digits", clients=50; they come before the file's.

    >>> settings(data="digits", clients=50, rounds=100).rounds
    100
    """
    return derive.settings(None if file is None else Path(file), named(given))
