"""What a run file says of its run: enough to read it alone, and to refuse a wrong continuation."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import fields
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefree.config import Schedule
from tunefree.core import Algorithm, about, text_of
from tunefree.data.samples import Federation, Samples
from tunefree.models.objective import Objective
from tunefree.record.facts import AS_PUBLISHED, Facts

LOOKED_AT = 100_000  # labels that tell one data set from another
SHOWN = 100  # clients whose labels are counted for the picture


def identify(
    algo: Algorithm,
    objective: Objective,
    federation: Federation,
    batch_size: int,
    seed: int,
    schedule: Schedule,
) -> dict[str, str]:
    """What a continued run must have in common with its beginning."""
    return {
        "algorithm": text_of(algo),
        "schedule": repr(schedule),
        "seed": str(seed),
        "batch size": str(batch_size),
        "kernels": objective.kernels,
        "first model": fingerprint(objective.theta0.cpu().numpy()),
        **identify_data(federation),
    }


def identify_data(federation: Federation) -> dict[str, str]:
    """Whose samples they are, how many, and their labels."""
    sizes = np.array([len(part) for part in federation.parts])
    test = "none" if federation.test is None else fingerprint(labels_of(federation.test))
    return {
        "clients' data": fingerprint(sizes) + fingerprint(labels_of(federation.train)),
        "test set": test,
    }


def labels_of(samples: Samples) -> NDArray[Any]:
    labels: NDArray[Any] = samples.y[:LOOKED_AT].cpu().numpy()
    return labels


def describe(algo: Algorithm, objective: Objective, federation: Federation | None = None) -> Facts:
    """The facts of the method, the model and the data."""
    said = about(algo)
    numbers = {f.name: getattr(algo, f.name) for f in fields(algo)}
    numbers |= {name: getattr(algo, name, None) for name in said.steps}  # formulas may be of t too
    return Facts(
        title=said.title,
        paper=said.paper,
        formulas=dict.fromkeys(said.steps, AS_PUBLISHED) if said.constant else dict(said.steps),
        steps={name: value for name, value in numbers.items() if isinstance(value, float)},
        compressor=str(numbers.get("C") or ""),
        system=algo.sys._asdict(),
        parameters=objective.d,
        shapes=[list(shape) for shape in objective.shapes],
        kernels=objective.kernels,
        versions=versions(),
        label_counts=[] if federation is None else label_counts(federation),
    )


def label_counts(federation: Federation) -> list[list[int]]:
    """How many samples of each class the first clients hold; nothing if there are no classes."""
    if federation.classes is None:
        return []
    labels = federation.train.y.cpu().numpy()
    return [
        np.bincount(labels[part], minlength=federation.classes).tolist()
        for _, part in zip(range(SHOWN), federation.parts, strict=False)
    ]


def fingerprint(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def versions() -> dict[str, str]:
    packages = ("tunefree", "torch", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}
