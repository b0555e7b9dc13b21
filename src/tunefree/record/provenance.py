"""What a run file stores about its run: enough to read it alone, and to refuse a wrong resume."""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
import warnings
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tunefree.core import Algorithm, about, as_data, numbers, step_sizes, text_of
from tunefree.data.samples import Federation, Samples
from tunefree.errors import ConfigError
from tunefree.models import weights
from tunefree.models.objective import Objective
from tunefree.record.facts import AS_PUBLISHED, Facts
from tunefree.settings import Settings, flat

SAME = [  # settings that a resumed run shares with its start
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
SIMULATED = [
    "clients",
    "per_round",
    "dispatch",
    "delays",
    "dropout",
    "timeout",
]  # too, if simulated
MODEL = "first model"
LOOKED_AT = 100_000  # labels in the fingerprint of a data set
BYTES = 2**24  # of inputs in that fingerprint
SHORT = 200  # letters of a text in an identity
READ = (torch.Tensor, np.ndarray, nn.Module, partial, bool, int, float, str)  # by a function
SHOWN = 100  # clients whose labels are counted for the figure


def identify(
    algo: Algorithm, objective: Objective, federation: Federation, settings: Settings
) -> dict[str, Any]:
    """What a resumed run must have in common with its start."""
    known = settings.algorithm and ":" not in settings.algorithm
    identity = {
        "model": text_or_mark(layers_of(objective.module)),
        "loss": getattr(objective.loss, "__qualname__", "") or text_of(objective.loss),
        "loss's parameters": text_or_mark(numbers_of(objective.loss)),
        **{name: getattr(settings, name) for name in (*SAME, *SIMULATED)},
        "steps": step_sizes(algo),
        "algorithm": settings.algorithm if known else as_data(algo),
        "kernels": objective.kernels,
        MODEL: fingerprint(objective.initial.cpu().numpy()),
        "frozen part": identify_frozen(objective),
        **identify_data(federation),
    }
    read_back: dict[str, Any] = json.loads(json.dumps(identity))  # as a run file gives it
    return read_back


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


def text_or_mark(text: str) -> str:
    """A short text as it is, and of a longer one the start and a fingerprint."""
    if len(text) <= SHORT:
        return text
    return f"{text[:SHORT]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def layers_of(module: nn.Module) -> str:
    """The module's layers as one line, with the functions among their attributes."""
    functions = [
        f", {layer}.{name} = {value.__name__}" if layer else f", {name} = {value.__name__}"
        for layer, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, FunctionType | BuiltinFunctionType)
    ]
    return " ".join(text_of(module).split()) + "".join(functions)


def numbers_of(value: object, depth: int = 4) -> str:
    """What a loss computes with: a module's attributes, bound arguments, what a function reads."""
    if isinstance(value, torch.Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        return str(array.tolist()) if array.size < 10 else fingerprint(array)
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    parts: dict[Any, Any] = {}
    if isinstance(value, nn.Module):
        parts = {name: each for name, each in vars(value).items() if name[0] != "_"}
        parts |= {**dict(value.named_buffers()), **dict(value.named_children())}
    elif isinstance(value, partial):
        parts = {**value.keywords, "function": value.func, "arguments": value.args}
    elif isinstance(value, FunctionType | MethodType) and not value.__module__.startswith("torch"):
        read = inspect.getclosurevars(value)
        used = {name: each for name, each in read.globals.items() if isinstance(each, READ)}
        parts = {**used, **read.nonlocals, "arguments": value.__defaults__}
        parts |= {"self": value.__self__} if isinstance(value, MethodType) else {}
    elif isinstance(value, list | tuple | dict):
        parts = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    else:  # an object
        parts = dict(getattr(value, "__dict__", {}))
    named = [
        f"{name}={numbers_of(parts[name], depth - 1)}" for name in sorted(parts, key=str) if depth
    ]
    return f"{getattr(value, '__name__', type(value).__name__)}({', '.join(named)})"


def identify_frozen(objective: Objective) -> str:
    """The part of the model that is not trained, if there is any."""
    own = () if objective.own is None else objective.own.names
    frozen = [n for n, _, place in tensors_of(objective) if place < 0 and n not in own]
    state = objective.module.state_dict()
    return weights.fingerprint({n: state[n] for n in frozen}) if frozen else ""


def check_frozen(facts: Facts, objective: Objective, path: Path) -> None:
    """Refuse a module whose untrained part differs from the one that the run was given.

    Other layers are only warned of, as a later torch may describe the same ones differently.
    """
    there, here = facts.identity.get("frozen part", ""), identify_frozen(objective)
    if facts.identity and there != here:
        raise ConfigError(
            f"the model does not fit '{path}': its frozen part (parameters that are not trained, "
            f"and buffers) was {there or 'empty'}, and now it is {here or 'empty'}; give the model "
            "as it was given to the run, with the same frozen weights"
        )
    before, now = facts.identity.get("model"), text_or_mark(layers_of(objective.module))
    if before not in (None, now):
        warnings.warn(
            f"the model that '{path}' trained was {before}, and this one is {now}: its predictions "
            "may differ",
            stacklevel=3,
        )


def identify_data(federation: Federation) -> dict[str, str]:
    """The partition, its sizes, the labels, and some inputs."""
    sizes, order = federation.parts.sizes, federation.parts.order[:LOOKED_AT]
    test, weights = federation.test, federation.weights
    return {
        "clients' data": fingerprint(sizes)
        + fingerprint(labels_of(federation.train))
        + ("" if weights is None else fingerprint(weights[0].numpy())),
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
        scaling=getattr(objective.module, "scaling", {}),
        kernels=objective.kernels,
        versions=versions(),
        unused=[] if federation is None else list(federation.unused),
        label_counts=[] if federation is None else label_counts(federation),
        names=[] if federation is None else list(federation.names),
        classes_named=[] if federation is None else list(federation.labels),
        weighted=federation is not None and federation.weights is not None,
    )


def tensors_of(objective: Objective) -> list[tuple[str, list[int], int]]:
    """Name, shape and place in theta of every tensor in the model's state.

    One that is not trained has place -1: it is only in the model. Tied tensors share a place.
    """
    state, places, start = objective.module.state_dict(keep_vars=True), dict[int, int](), 0
    for p in objective.shared:
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
