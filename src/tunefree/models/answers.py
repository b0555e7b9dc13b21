"""What modules take and return: tensors, tuples, dicts, perhaps their own loss."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from tunefree.data.samples import Inputs, each, tensors_of
from tunefree.errors import ConfigError

Answer: TypeAlias = Any  # a tensor, a tuple or a dict of them, or an object with .logits


def call(module: nn.Module, x: Inputs, **more: torch.Tensor | None) -> Answer:
    """The module's answer: a tuple gives positional arguments, a dict keywords."""
    if isinstance(x, torch.Tensor):
        return module(x, **more)
    return module(*x, **more) if isinstance(x, tuple) else module(**x, **more)


def entry(answer: Answer, name: str) -> torch.Tensor | None:
    """The tensor of that name in a dict or an object, if there is one."""
    value = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
    return value if isinstance(value, torch.Tensor) else None


def outputs_of(answer: Answer) -> torch.Tensor:
    """The outputs for a loss: `logits`, or the first tensor that is not a loss."""
    if isinstance(answer, torch.Tensor):
        return answer
    logits = entry(answer, "logits")
    if logits is not None:
        return logits
    named = dict(answer) if isinstance(answer, Mapping) else dict(enumerate(listed(answer)))
    tensors = [v for k, v in named.items() if isinstance(v, torch.Tensor) and k != "loss"]
    if not tensors:
        raise ConfigError(
            f"the model returned a {type(answer).__name__} without outputs; return a tensor, or a "
            "dict with the entry 'logits'"
        )
    return tensors[0]


def listed(answer: Answer) -> list[object]:
    return list(answer) if isinstance(answer, tuple | list) else []


def together(answers: Sequence[Answer]) -> Answer:
    """The answers to several batches as the answer to one."""
    first = answers[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([a if a.dim() == first.dim() else a.unsqueeze(0) for a in answers])
    if isinstance(first, Mapping):
        joined = {name: together([answer[name] for answer in answers]) for name in first}
        return joined if type(first) is dict else type(first)(**joined)
    if isinstance(first, tuple | list):
        parts = [together(part) for part in zip(*answers, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise TypeError(f"a {type(first).__name__} is not made of tensors")


def tensors_in(answer: Answer) -> list[torch.Tensor]:
    """All tensors in an answer."""
    if isinstance(answer, torch.Tensor):
        return [answer]
    parts = answer.values() if isinstance(answer, Mapping) else listed(answer)
    return [tensor for part in parts for tensor in tensors_in(part)]


def loss_of_model(answer: Answer, y: torch.Tensor) -> torch.Tensor:
    """The loss that the model computed itself."""
    loss = entry(answer, "loss")
    if loss is None:
        raise ConfigError(
            "the model returned a `loss` when it was tried and none now; always return one, "
            "or pass your own with loss=..."
        )
    return loss


def inputs_of(module: nn.Module) -> tuple[str, ...]:
    """The inputs that the module's forward names, without the labels that some take."""
    check_module(module)
    named = inspect.signature(module.forward).parameters.values()
    either = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in named if p.kind in either and p.name != "labels")


def takes_labels(module: nn.Module) -> bool:
    """Whether the module can take the targets, as Hugging Face's do."""
    return "labels" in inspect.signature(module.forward).parameters


def needs_labels(module: nn.Module) -> bool:
    """Whether it requires them."""
    wanted = inspect.signature(module.forward).parameters.get("labels")
    return wanted is not None and wanted.default is inspect.Parameter.empty


def tried(module: nn.Module, x: Inputs, y: torch.Tensor, labels: bool = False) -> Answer:
    """The module's answer; it gets the labels if asked for, or if it requires them."""
    device = device_of(module)
    more = {"labels": y.to(device)} if labels or needs_labels(module) else {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            return call(module, each(lambda x: x.to(device), x), **more)
        except Exception as error:
            raise ConfigError(cannot_take(module, x, y, error)) from error


def cannot_take(module: nn.Module, x: Inputs, y: torch.Tensor, error: Exception) -> str:
    """The error: what was tried, why it failed, and a fix if one is known."""
    tensors = tensors_of(x)
    what = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors.values())
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    sentence = (
        f"the model and loss cannot take a batch with x {what} and y {tuple(y.shape)} {y.dtype}: "
        f"{reason}"
    )
    floats = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    weights = {p.dtype for p in module.parameters() if p.is_floating_point()}
    if len(floats) == len(weights) == 1 and floats != weights:
        sentence += f"; give inputs of the model's type, x.to({weights.pop()})"
    if isinstance(error, TypeError) and "positional argument" in reason:
        sentence += "; several inputs are a tuple, ((a, b), y), or a dict by name"
    if "does not require grad" in reason:
        sentence += "; compute the loss from the outputs without .detach() and torch.no_grad()"
    if any(tensor.is_complex() for tensor in tensors.values()):
        sentence += "; give real numbers, torch.view_as_real(x)"
    elif tensors and not floats and "type" in reason:
        pixels = any(tensor.dtype == torch.uint8 for tensor in tensors.values())
        sentence += f"; give floats, {'x.float() / 255' if pixels else 'x.float()'}"
    return sentence


def device_of(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def check_module(module: object) -> None:
    """Refuse what is not a module, or one without its weights."""
    if not isinstance(module, nn.Module):
        name = getattr(module, "__name__", "")
        what = f"{'class' if isinstance(module, type) else 'function'} {name}" if name else ""
        raise ConfigError(
            f"model is the {what}, not a module; make one with it, such as {name}()"
            if name
            else f"model is of type {type(module).__name__}; give a torch.nn.Module"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ConfigError(
            "the model is compiled by TorchScript, so its layers cannot be read; give the module "
            "as it was before torch.jit.script or torch.jit.trace"
        )
    for name, layer in module.named_modules():
        if getattr(layer, "sparse", False) is True:
            raise ConfigError(
                f"layer {name!r} has sparse gradients, and those sent are dense; make it with "
                "sparse=False"
            )
    for name, p in module.named_parameters():
        if p.is_complex():
            raise ConfigError(
                f"the model's parameter {name!r} is complex, and vectors of real numbers are sent; "
                "store it as real numbers, torch.view_as_real(p), and use torch.view_as_complex in "
                "forward"
            )
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"the model's parameter {name!r} has no shape yet, as its layer is lazy; "
                "call the model once on a batch of inputs first"
            )
        if p.is_meta:
            raise ConfigError(
                f"the model's parameter {name!r} is on the meta device and has no numbers; load "
                "the model's weights first, or make it on the cpu"
            )
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        raise ConfigError(
            "training was started inside torch.autocast, which does not reach worker processes "
            "and caches old weights; use torch.autocast inside the model's forward instead"
        )


def copy_of(module: nn.Module) -> nn.Module:
    """A copy with tensors of its own; layers that share a tensor still share one."""
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:
        raise ConfigError(
            f"the model cannot be copied ({str(error).splitlines()[0]}); instead of "
            "torch.nn.utils.weight_norm use torch.nn.utils.parametrizations.weight_norm"
        ) from error
