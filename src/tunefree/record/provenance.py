"""What a run file stores about its run: enough to read it alone, and to refuse a wrong resume."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, about, as_data, numbers, step_sizes, text_of
from tunefree.data.samples import Federation, Samples
from tunefree.models import weights
from tunefree.models.objective import Objective
from tunefree.record.facts import AS_PUBLISHED, Facts
from tunefree.settings import Sampling, Settings

LOOKED_AT = 100_000  # labels in the fingerprint of a data set
BYTES = 2**24  # of inputs in that fingerprint
SHOWN = 100  # clients whose labels are counted for the figure


def identify(
    algo: Algorithm,
    objective: Objective,
    federation: Federation,
    settings: Settings,
) -> dict[str, str]:
    """What a resumed run must have in common with its start."""
    epochs = f" for {settings.local_epochs} epochs" if settings.local_epochs else ""
    return {
        "algorithm": f"{json.dumps(as_data(algo))}{epochs}",
        "schedule": f"{settings.scheduling!r}{drawn(settings.sampling)}",
        "seed": str(settings.seed),
        "batch size": str(settings.batch_size),
        "kernels": objective.kernels,
        "first model": fingerprint(objective.theta0.cpu().numpy()),
        **identify_frozen(objective),
        **identify_data(federation),
        "loss": getattr(objective.loss, "__qualname__", "") or text_of(objective.loss),
    }


def identify_frozen(objective: Objective) -> dict[str, str]:
    """The part of the model that is not trained, if there is any."""
    frozen = [name for name, _, place in tensors_of(objective) if place < 0]
    state = objective.module.state_dict()
    return {"frozen part": weights.fingerprint({n: state[n] for n in frozen})} if frozen else {}


def identify_data(federation: Federation) -> dict[str, str]:
    """The partition, its sizes, the labels, and some inputs."""
    sizes, order = federation.parts.sizes, federation.parts.order[:LOOKED_AT]
    test = federation.test
    return {
        "clients' data": fingerprint(sizes) + fingerprint(labels_of(federation.train)),
        "inputs": fingerprint(order) + inputs_mark(federation.train),
        "test set": "none" if test is None else fingerprint(labels_of(test)) + inputs_mark(test),
    }


def labels_of(samples: Samples) -> NDArray[Any]:
    labels: NDArray[Any] = samples.y[:LOOKED_AT].cpu().numpy()
    return labels


def inputs_mark(samples: Samples) -> str:
    """A fingerprint of inputs from the whole data set, as many as fit into a few megabytes."""
    x: Any = samples.x  # one tensor or several; lazy ones are read when drawn
    several = list(x.values()) if isinstance(x, dict) else x if isinstance(x, tuple) else [x]
    marks = ""
    for tensor in several:
        if isinstance(tensor, torch.Tensor):
            count = min(len(tensor), max(1, BYTES // max(1, tensor[:1].nbytes)))
            places = np.linspace(0, len(tensor) - 1, count).astype(np.int64)
            chosen = tensor[torch.from_numpy(places)].cpu().reshape(-1)
            marks += fingerprint(chosen.view(torch.uint8).numpy())
    return marks


def drawn(sampling: Sampling) -> str:
    """How clients are sampled, as text; empty if uniformly."""
    if sampling == "uniform":
        return ""
    by = sampling if isinstance(sampling, str) else f"weights {fingerprint(np.array(sampling))}"
    return f", sampling by {by}"


def describe(algo: Algorithm, objective: Objective, federation: Federation | None = None) -> Facts:
    """The facts of the method, the model and the data."""
    said = about(algo)
    formulas = {name: step.formula for name, step in said.steps.items()}
    return Facts(
        title=said.title,
        paper=said.paper,
        formulas=dict.fromkeys(formulas, AS_PUBLISHED) if said.constant else formulas,
        steps=step_sizes(algo),
        compressor=str(numbers(algo).get("C") or ""),
        system=algo.sys._asdict(),
        parameters=objective.d,
        tensors=tensors_of(objective),
        kernels=objective.kernels,
        versions=versions(),
        label_counts=[] if federation is None else label_counts(federation),
    )


def tensors_of(objective: Objective) -> list[tuple[str, list[int], int]]:
    """Name, shape and place in theta of every tensor in the model's state.

    One that is not trained has place -1: it is only in the model. Tied tensors share a place.
    """
    state, places, start = objective.module.state_dict(keep_vars=True), dict[int, int](), 0
    for p in objective.module.parameters():
        if p.requires_grad:
            places[id(p)], start = start, start + p.numel()
    return [(name, list(t.shape), places.get(id(t), -1)) for name, t in state.items()]


def label_counts(federation: Federation) -> list[list[int]]:
    """How many samples of each class the first clients have; empty without classes."""
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
