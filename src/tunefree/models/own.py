"""The part of a model that stays with each client: FedPer's heads, FedBN's batch norm.

The method and the server know only the rest, one vector theta. The own part needs no step size:
with every mini-batch that a client draws, tensor l of it moves by (λ_j / K) r_l along its gradient,
where r_l is the tensor's unit (its initial norm) and j counts the client's jobs:

    λ_j = max(1, sqrt(K / 10)) K^(1/4) / (j + 10)^(3/4)      PolarFL's path in a federation of one

Running statistics are as the client's own batches leave them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import nn

from tunefree.core import Algorithm, Client, Vec, mean
from tunefree.errors import ConfigError, unknown_name
from tunefree.geometry import add_directions, descend


class Kept(NamedTuple):
    """A client's state in such a run: what the method remembers, and the own part."""

    method: Client
    own: Vec
    jobs: float = 0.0  # that it has done


class Own:
    """The own part of a module, read and written as one vector: parameters, then statistics."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        statistics: Mapping[str, torch.Tensor],
        units: Sequence[float],
        like: Vec,
    ) -> None:
        self.names = (*parameters, *statistics)
        self.parameters, self._statistics = list(parameters.values()), list(statistics.values())
        self.shapes = tuple(tuple(p.shape) for p in self.parameters)
        self._sizes = [p.numel() for p in self.parameters]
        self.trained = sum(self._sizes)
        self._units = self._steps = tuple(units)
        tensors = [p.detach() for p in self.parameters] + self._statistics
        self.first: Vec = torch.cat([t.reshape(-1).to(like) for t in tensors])
        self._now = self.first[: self.trained]
        self.grad: Vec | None = None  # of the parameters, not yet used

    def put(self, own: Vec, jobs: float = 0.0, K: int = 1) -> None:
        """Make this the own part of the module, for a job of K steps after so many jobs."""
        self._now, self.grad = own[: self.trained], None
        self._place()
        sizes = [each.numel() for each in self._statistics]
        for each, values in zip(
            self._statistics, torch.split(own[self.trained :], sizes), strict=True
        ):
            each.copy_(values.view(each.shape))
        path = max(1.0, (K / 10) ** 0.5) * K**0.25 / (jobs + 10) ** 0.75
        self._steps = tuple(path / K * r for r in self._units)

    def taken(self) -> Vec:
        """The own part of the module as it is now."""
        self.step()
        statistics = [each.reshape(-1).to(self._now) for each in self._statistics]
        return torch.cat([self._now, *statistics])

    def step(self) -> None:
        """Use the gradient of the last mini-batch, if there is one."""
        if self.grad is not None:
            D = add_directions(torch.zeros_like(self.grad), self.grad, self.shapes)
            self._now, self.grad = descend(self._now, D, self._steps, self.shapes), None
            self._place()

    def _place(self) -> None:
        parts = torch.split(self._now, self._sizes)
        for p, part, shape in zip(self.parameters, parts, self.shapes, strict=True):
            p.data = part.view(shape).to(p.dtype)


class OwnParts:
    """The own parts of N clients; one that has none by now gets the mean of the others'."""

    def __init__(self, own_of: Callable[[int], Vec | None], N: int) -> None:
        self._own_of, self._N = own_of, N

    def __call__(self, client: int) -> Vec | None:
        """None if nobody has an own part, yet or at all."""
        own = self._own_of(client)
        return self.mean if own is None else own

    @cached_property
    def mean(self) -> Vec | None:
        found = [own for client in range(self._N) if (own := self._own_of(client)) is not None]
        return mean(found) if found else None


NOBODY = OwnParts(lambda client: None, 0)  # in a run in which all share the whole model


def first_state(algo: Algorithm, theta0: Vec, own: Own | None) -> Client:
    """The state that a client starts with."""
    client = algo.client(theta0)
    return client if own is None else Kept(client, own.first)


def own_parameters(module: nn.Module, local: Sequence[str]) -> dict[str, nn.Parameter]:
    """The trainable parameters with one of these names, or below one of them."""
    every = dict(module.named_parameters(remove_duplicate=False))
    found: dict[str, nn.Parameter] = {}
    for prefix in local:
        below = {n: p for n, p in every.items() if n == prefix or n.startswith(f"{prefix}.")}
        if not any(p.requires_grad for p in below.values()):
            parts = {name.rpartition(".")[0] for name, p in every.items() if p.requires_grad}
            raise unknown_name("trainable part of the model", prefix, {*every, *parts} - {""})
        found |= {name: p for name, p in below.items() if p.requires_grad}
    tied = {id(p) for p in found.values()}
    return {name: p for name, p in module.named_parameters() if id(p) in tied}


def normalising(module: nn.Module, training: set[nn.Module]) -> dict[str, nn.Module]:
    """The layers in training that keep running statistics, by name."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if layer in training and getattr(layer, "running_mean", None) is not None
    }


def refuse_running_statistics(layers: Mapping[str, nn.Module]) -> None:
    """Batch norm's running mean and variance are not parameters; averaging them would be wrong."""
    for name, layer in layers.items():
        raise ConfigError(
            f"layer {name or 'model'!r} ({type(layer).__name__}) keeps running statistics, "
            "which clients with different data cannot share; let each keep its own, {batch_norm} = "
            "local (FedBN), convert it, tunefree.models.group_norm(model), or leave a trained "
            f"layer as it is: model.train(), then model.get_submodule({name!r}).eval()"
        )
