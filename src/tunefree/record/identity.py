"""A run's identity: the settings and fingerprints that a resumed run shares with its start."""

from __future__ import annotations

from collections.abc import Mapping

from tunefree.settings import flat

SAME = [  # settings in the identity of every run
    "algorithm",
    "option",
    "compressor",
    "decay",
    "weighting",
    "robust",
    "average",
    "sampling",
    "batch_size",
    "seed",
    "local_steps",
    "local_epochs",
    "schedule",
    "concurrency",
    "opening",
    "secure",
]
SIMULATED = (
    "clients",
    "per_round",
    "dispatch",
    "delays",
    "dropout",
    "timeout",
)  # and in a simulation's
MODEL = "first model"


def changes(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What differs, a clause for each entry; None stands for one that was not given.

    >>> changes({"seed": 0, "option": {"eta": 0.1}}, {"seed": 1, "option": {}})
    ['seed was 0, and now it is 1', 'option.eta was 0.1, and now it is not given']
    """
    old, new = flat(before), flat(now)
    return [
        f"{key} was {shown(old.get(key))}, and now it is {shown(new.get(key))}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def shown(value: object) -> str:
    return "not given" if value is None else str(value) or "none"
