"""What settings were called up to version 0.2.0, in files and run files: `system.S`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT = {  # section -> the settings of it that kept their name
    "system": "sampling",
    "algorithm": "compressor decay weighting explicit_steps",
    "data": "partition batch_size validation",
    "model": "start lora",
    "schedule": "concurrency dispatch delays dropout timeout opening",
    "run": "seed eval_every grad_norm device fleet workers kernels commit_every out",
}
CHANGED = {
    "system.N": "clients",
    "system.S": "per_round",
    "system.K": "local_steps",
    "system.T": "rounds",
    "system.epochs": "local_epochs",
    "algorithm.name": "algorithm",
    "data.name": "data",
    "data.dir": "data_dir",
    "data.fingerprint": "data_fingerprint",
    "model.name": "model",
    "model.fingerprint": "start_fingerprint",
    "schedule.name": "schedule",
}
ABSENT: Mapping[str, Mapping[str, object]] = {  # from files where they were at their default
    "system": {"local_epochs": 0, "sampling": "uniform", "attack": "", "secure": False},
    "algorithm": {"decay": "none", "weighting": "uniform", "robust": "none", "average": "off"},
    "data": {"data_fingerprint": "", "standardise": False, "client_test": 0.0},
    "model": {
        "start": "",
        "start_fingerprint": "",
        "lora": 0,
        "local": "",
        "batch_norm": "refuse",
        "clip_gradients": 0.0,
        "accumulate": 1,
    },
}
TABLE_OF = {"algorithm": "option", "data": "data_option", "model": "model_option"}


def now_called(key: str) -> str:
    """Today's name of a setting, or an empty string if it never had this one.

    >>> now_called("system.S"), now_called("algorithm.eta"), now_called("per_round")
    ('per_round', 'option.eta', '')
    """
    section, _, name = key.partition(".")
    if key in CHANGED or name in KEPT.get(section, "").split():
        return CHANGED.get(key, name)
    return f"{TABLE_OF[section]}.{name}" if name and section in TABLE_OF else ""


def renamed(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a run file of version 0.2.0, by today's names.

    >>> renamed({"schedule": {"name": "buffered"}, "run": {"seed": 7}})
    {'schedule': 'buffered', 'seed': 7}
    """
    found = dict[str, Any]()
    for section, values in sections.items():
        if not isinstance(values, Mapping):
            continue
        found |= ABSENT.get(section, {})
        for name, value in values.items():
            if name == "options" and isinstance(value, Mapping):
                options = dict(value)
                if section == "data" and "fingerprint" in options:
                    found["data_fingerprint"] = options.pop("fingerprint")
                found[TABLE_OF[section]] = options
            elif now := now_called(f"{section}.{name}"):
                found[now] = value
    if found.get("local_epochs"):
        found["local_steps"] = None
    return found
