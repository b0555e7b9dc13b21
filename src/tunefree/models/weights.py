"""Weights in a file, by the names of a model's tensors, and loading them into the model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from tunefree.errors import ConfigError

State: TypeAlias = Mapping[str, torch.Tensor]
FILES = (".safetensors", ".pt")


def read(path: Path) -> State:
    """The state dict in a .safetensors or a .pt file."""
    try:
        state = read_safetensors(path) if path.suffix == ".safetensors" else read_pt(path)
    except ConfigError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"cannot be read as {path.suffix} ({reason})",
            "save it with `tunefree export --state-dict`, or torch.save(model.state_dict(), path)",
            setting="start",
            value=str(path),
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(each, torch.Tensor) for each in state.values()
    ):
        raise ConfigError(
            "contains no state dict (a dict of tensors by name)",
            "save it with torch.save(model.state_dict(), path)",
            setting="start",
            value=str(path),
        )
    return state


def read_pt(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def read_safetensors(path: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ConfigError(
            "needs safetensors",
            "install it: pip install 'tunefree[export]'",
            setting="start",
            value=str(path),
        ) from error
    return load_file(path)


def put(module: nn.Module, state: State, path: str) -> None:
    """Load these weights into the module; refuse missing or unknown ones."""
    own = {n: each for n, each in module.state_dict().items() if isinstance(each, torch.Tensor)}
    wrong = [f"it has no {name!r}" for name in own if name not in state]
    wrong += [f"the model has no {name!r}" for name in state if name not in own]
    wrong += [
        f"{name!r} has shape {tuple(each.shape)} there and {tuple(own[name].shape)} in the model"
        for name, each in state.items()
        if name in own and each.shape != own[name].shape
    ]
    if "theta" in state and "theta" not in own:
        raise ConfigError(
            "has a server's vectors, as `tunefree export --safetensors` writes them",
            "export the model with --state-dict",
            setting="start",
            value=str(path),
        )
    if wrong:
        raise ConfigError(
            f"does not fit the model: {wrong[0]}",
            "give weights of the same model, or choose their model ({model})",
            setting="start",
            value=str(path),
        )
    module.load_state_dict(state)


def fingerprint(state: State) -> str:
    """Twelve letters and digits that change if names, shapes, types or weights do."""
    mark = hashlib.sha256()
    for name in sorted(state):
        each = state[name].detach().cpu().reshape(-1)
        mark.update(f"{name} {tuple(state[name].shape)} {each.dtype} ".encode())
        mark.update(each.view(torch.uint8).numpy().data)
    return mark.hexdigest()[:12]
