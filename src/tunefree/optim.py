"""PolarFL's local steps in a training loop of your own: an optimizer without a learning rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from tunefree.errors import ConfigError

__all__ = ["LocalSteps"]


class Group(dict[str, Any]):
    """A group of parameters, which has no learning rate that a scheduler could change."""

    def __missing__(self, key: str) -> Any:
        raise ConfigError(
            f"LocalSteps has no '{key}' to change: the server sends the length of every step; "
            "remove the scheduler"
            if key == "lr"
            else f"LocalSteps has no '{key}'"
        )


class LocalSteps(torch.optim.Optimizer):
    """The client's part of `polarfl_stateless`, for a loop of `zero_grad`, `backward` and `step`.

    Every step moves each tensor against its gradient by the length that the server sent for it.
    At the end `upload` gives what the server needs: one vector of norm at most 1 for the model.

    Args:
        params: As for any optimizer, best with names: `model.named_parameters()`. Frozen ones are
            left out, which the server's model must have frozen too.
        config: What the server sent: `steps`, a length for each tensor, `sizes`, their numbers
            of elements in the same order, and `local-steps`, how many steps it expects.
        local_steps: How many steps this client takes, if it is another number: their lengths
            change so that all clients move equally far.

    >>> model = torch.nn.Linear(2, 1)
    >>> config = {"steps": [0.1, 0.1], "sizes": [2, 1], "local-steps": 1}
    >>> optimizer = LocalSteps(model.named_parameters(), config)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> round(float(sum(u.norm() ** 2 for u in optimizer.upload().values())), 5)
    1.0
    """

    def __init__(
        self, params: ParamsT, config: Mapping[str, Any], local_steps: int | None = None
    ) -> None:
        for key in ("steps", "sizes", "local-steps"):
            if key not in config:
                raise ConfigError(
                    f"the server sent no '{key}'; LocalSteps needs the config of a round, "
                    'msg.content["config"], from tunefree.flower.PolarFL or a server like it'
                )
        if local_steps is not None and local_steps < 1:
            raise ConfigError("must be at least 1", setting="local_steps", value=local_steps)
        super().__init__(params, {})
        self._names = names_of(self.param_groups)
        sizes = [p.numel() for p in self._names.values()]
        if sizes != list(config["sizes"]):
            raise ConfigError(
                f"the server has tensors of {shown(config['sizes'])} numbers and LocalSteps was "
                f"given parameters of {shown(sizes)}; give those of the same model that need "
                "gradients, in its order: model.named_parameters()"
            )
        share = config["local-steps"] / (local_steps or config["local-steps"])
        steps = [share * step for step in config["steps"]]
        self._lengths = dict(zip(self._names, steps, strict=True))
        self._sums = {name: torch.zeros_like(p).float() for name, p in self._names.items()}
        self._taken = 0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if "lr" in param_group:
            raise ConfigError(
                "LocalSteps has no learning rate: the server sends the length of every step; "
                "leave lr out"
            )
        super().add_param_group(Group(param_group))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step against the gradients; of a closure, its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for name, p in self._names.items():
            if p.grad is None:
                continue  # as a gradient of zero: it does not move
            grad = p.grad.float()
            length = torch.linalg.vector_norm(grad)
            p.sub_(self._lengths[name] * grad / (length + (length == 0)))
            self._sums[name] += grad
        self._taken += 1
        return loss

    def upload(self) -> dict[str, torch.Tensor]:
        """The direction of the mean gradient of every tensor, weighted: norm at most 1 in all."""
        if not self._taken:
            raise ConfigError(
                "no step was made, so there is nothing to upload; leave this client's reply out"
            )
        roots = {name: sqrt(p.numel()) for name, p in self._names.items()}
        whole, found = sum(roots.values()) or 1.0, dict[str, torch.Tensor]()
        for name, total in self._sums.items():
            length = torch.linalg.vector_norm(total)
            if not torch.isfinite(length):
                raise ConfigError(
                    f"the gradients of '{name}' are not finite numbers; check this client's data "
                    "and loss"
                )
            found[name] = sqrt(roots[name] / whole) * total / (length + (length == 0))
        return found


def names_of(groups: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """The parameters that need gradients, by name; without names, by number."""
    named = [
        (name, p)
        for group in groups
        for name, p in zip(
            group.get("param_names", [None] * len(group["params"])), group["params"], strict=True
        )
        if p.requires_grad
    ]
    if not named:
        raise ConfigError("LocalSteps was given no parameter that needs a gradient")
    return {str(place) if name is None else name: p for place, (name, p) in enumerate(named)}


def shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:8])) + ", ..." * (len(sizes) > 8)
