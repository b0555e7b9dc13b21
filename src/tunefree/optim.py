"""PolarFL in a federation of your own: the client's steps as an optimizer, and the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import ParamsT

from tunefree.core import Reply, System, Vec, bind
from tunefree.errors import ConfigError
from tunefree.geometry import tensor_weights
from tunefree.methods import polarfl_stateless as page

__all__ = ["LocalSteps", "Server"]

LONGEST = 1.0 + 1e-3  # of an upload, which is 1 up to rounding


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
        weights = tensor_weights([tuple(p.shape) for p in self._names.values()])
        found: dict[str, torch.Tensor] = {}
        for w, (name, total) in zip(weights, self._sums.items(), strict=True):
            length = torch.linalg.vector_norm(total)
            if not torch.isfinite(length):
                raise ConfigError(
                    f"the gradients of '{name}' are not finite numbers; check this client's data "
                    "and loss"
                )
            found[name] = w * total / (length + (length == 0))
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


class Server:
    """The server's part of `polarfl_stateless`, for a federation of any framework.

    It keeps momentum, units, reach and average. Every round, clients get the tensors of `start`
    and the numbers of `config`, and `step` takes what they upload.

    Args:
        model: The initial model.
        local_steps: How many steps a client takes in a round, about.

    >>> model = torch.nn.Linear(2, 1)
    >>> server = Server(model, local_steps=1)
    >>> config, _ = server.config(clients=1), model.load_state_dict(server.start())
    >>> optimizer = LocalSteps(model.named_parameters(), config)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> server.step([optimizer.upload()])
    >>> sorted(server.model()), server.rounds
    (['bias', 'weight'], 1)
    """

    def __init__(self, model: nn.Module, local_steps: int) -> None:
        if local_steps < 1:
            raise ConfigError("must be at least 1", setting="local_steps", value=local_steps)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise ConfigError("the model has no parameter that needs a gradient")
        if floating := [name for name, b in model.named_buffers() if b.is_floating_point()]:
            raise ConfigError(
                f"the model has state that gradients do not train, such as '{floating[0]}'; "
                "tunefree.models.group_norm(model) puts group norm in place of batch norm"
            )
        self._K, self._S = local_steps, 1
        self._shapes = {name: tuple(p.shape) for name, p in trained.items()}
        self.reset(model.state_dict())

    def reset(self, state: Mapping[str, torch.Tensor]) -> None:
        """Begin again with these tensors of the model."""
        if missing := [name for name in self._shapes if name not in state]:
            raise ConfigError(
                f"the initial arrays have no '{missing[0]}'; give those of the same model: "
                "model.state_dict()"
            )
        self._rest = {name: value for name, value in state.items() if name not in self._shapes}
        self._state = self._bound().server(self._flat(state))

    @property
    def rounds(self) -> int:
        """How many rounds were made."""
        return self._state.t

    def config(self, clients: int) -> dict[str, Any]:
        """What `LocalSteps` needs in a round of so many clients."""
        self._S = clients
        sizes = [prod(shape) for shape in self._shapes.values()]
        steps = list(self._bound().broadcast(self._state).steps)
        return {"steps": steps, "sizes": sizes, "local-steps": self._K}

    def start(self) -> dict[str, torch.Tensor]:
        """The tensors of the model that clients start from."""
        return self._tensors(self._state.x)

    def model(self) -> dict[str, torch.Tensor]:
        """The tensors of the averaged model, the one to evaluate and to use."""
        return self._tensors(self._state.theta)

    def wrong(self, upload: Mapping[str, torch.Tensor]) -> str:
        """What is wrong with an upload; nothing, usually."""
        named = self._named(upload)
        if {name: tuple(value.shape) for name, value in named.items()} != self._shapes:
            return "reply with optimizer.upload(), not with a model"
        length = float(torch.linalg.vector_norm(self._flat(named)))
        if not length <= LONGEST:  # nan too
            return f"its norm is {length:.3g}, and LocalSteps uploads at most 1"
        return ""

    def step(self, uploads: Iterable[Mapping[str, torch.Tensor]]) -> None:
        """One step along the mean of the uploads; their mean as the only one does as well."""
        replies = []
        for i, upload in enumerate(uploads):
            if wrong := self.wrong(upload):
                raise ConfigError(f"upload {i} cannot be used: {wrong}")
            replies.append(Reply(i, n=1, tau=0, up=page.Up(self._flat(self._named(upload)))))
        if replies:
            self._state = self._bound().aggregate(self._state, replies)

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on, for `torch.save`."""
        return {"shapes": self._shapes, "server": self._state._asdict()}

    def load_state_dict(self, stored: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if stored["shapes"] != self._shapes:
            raise ConfigError("the stored server is of another model; give another file")
        self._state = page.Server(**stored["server"])

    def _bound(self) -> page.PolarFLStateless:
        system = System(N=self._S, S=self._S, K=self._K, T=1)
        return bind(page.PolarFLStateless(), system, tuple(self._shapes.values()))

    def _named(self, upload: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Of parameters without names, in their order."""
        numbered = len(upload) == len(self._shapes) and all(name.isdecimal() for name in upload)
        return dict(zip(self._shapes, upload.values(), strict=True)) if numbered else upload

    def _flat(self, state: Mapping[str, torch.Tensor]) -> Vec:
        return torch.cat([state[name].detach().float().flatten() for name in self._shapes])

    def _tensors(self, theta: Vec) -> dict[str, torch.Tensor]:
        """A model's: those of the flat vector, and what is not trained, as at the start."""
        parts = torch.split(theta, [prod(shape) for shape in self._shapes.values()])
        trained = zip(self._shapes.items(), parts, strict=True)
        return {name: part.view(shape).clone() for (name, shape), part in trained} | self._rest
