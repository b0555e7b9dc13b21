"""A module and a loss as a function of one flat vector, and which modules can be one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import nn

from tunefree.config import Kernels
from tunefree.core import Vec
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError
from tunefree.models.kernels import Chain, chain_of

Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
EVALUATION_BATCH = 200  # larger ones leave the caches


class Objective:
    """Loss and gradient of a module at a flat vector theta of its trainable parameters.

    The module given is copied. Frozen parameters and constant buffers stay as they are; buffers
    that change in training are refused. `kernels` says how the same numbers are computed:
    "plain" by the module as it is, "channels-last" by the module in that memory format,
    "batch-minor" by our own layers (see kernels.py), "auto" by what suits the module.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = nn.functional.cross_entropy,
        device: str | torch.device = "cpu",
        kernels: Kernels = "auto",
        stochastic: bool = True,
    ) -> None:
        refuse_running_statistics(module)
        self.module = copy.deepcopy(module).to(device)
        self.loss = loss
        self.device = torch.device(device)
        self.stochastic = stochastic  # until `check` has seen otherwise
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.shapes = tuple(tuple(p.shape) for p in self._parameters)
        self._sizes = [p.numel() for p in self._parameters]
        refuse_unusable(self._parameters)
        self.theta0: Vec = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._chain: Chain | None = None
        self.kernels = self._use(kernels)

    def _use(self, wanted: Kernels) -> Kernels:
        """Set up the kernels that are wanted, and say which they are."""
        chain = None
        if self.loss is nn.functional.cross_entropy and self.device.type == "cpu":
            chain = chain_of(self.module)
        if wanted == "auto":
            convolutional = any(isinstance(layer, nn.Conv2d) for layer in self.module.modules())
            wanted = "channels-last" if convolutional else "plain"
            wanted = "batch-minor" if chain else wanted
        if wanted == "batch-minor":
            if chain is None:
                raise ConfigError(
                    "run.kernels = 'batch-minor' needs a Sequential of convolutions with stride 1, "
                    "max pooling, ReLU and dense layers, cross-entropy and the cpu; use 'auto'"
                )
            self._chain = chain
        return wanted

    def __reduce__(self) -> tuple[object, ...]:
        module, loss, device = self.module, self.loss, self.device
        return Objective, (module, loss, device, self.kernels, self.stochastic)

    @property
    def d(self) -> int:
        """The number of trainable parameters."""
        return self.theta0.numel()

    def module_at(self, theta: Vec) -> nn.Module:
        """The module with a copy of theta as its parameters, in evaluation mode."""
        self._place(theta.clone())
        self._set_training(False)
        return self.module

    def _place(self, theta: Vec) -> None:
        """Make the parameters views into theta, copied only if they need another memory format."""
        for p, part, shape in zip(
            self._parameters, torch.split(theta, self._sizes), self.shapes, strict=True
        ):
            p.data = part.view(shape)
            if self.kernels == "channels-last" and len(shape) == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)

    def _set_training(self, mode: bool) -> None:
        if self.module.training is not mode:  # walking all layers at every step would show
            self.module.train(mode)

    def loss_and_grad(
        self, theta: Vec, x: torch.Tensor, y: torch.Tensor, seed: int
    ) -> tuple[Vec, Vec]:
        """F and ∇F on one batch; `seed` fixes dropout masks, so one xi gives one function."""
        if self._chain is not None:
            return self._chain.loss_and_grad(theta, x, y)
        self._place(theta)
        self._set_training(True)
        if self.stochastic:
            torch.manual_seed(seed)
        loss = self.loss(self.module(self._enter(x)), y.to(self.device))
        grads = torch.autograd.grad(loss, self._parameters)
        return loss.detach(), torch.cat([g.reshape(-1) for g in grads])

    def grad(self, theta: Vec, x: torch.Tensor, y: torch.Tensor, seed: int) -> Vec:
        """∇F alone, for which our own layers need not finish the loss."""
        if self._chain is not None:
            return self._chain.grad(theta, x, y)
        return self.loss_and_grad(theta, x, y, seed)[1]

    def _enter(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.device)
        if self.kernels == "channels-last" and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    @torch.no_grad()
    def outputs(self, theta: Vec, x: torch.Tensor) -> torch.Tensor:
        """What the module answers in evaluation mode."""
        if self._chain is not None:
            return self._chain.outputs(theta, x)
        self._place(theta)
        self._set_training(False)
        answer: torch.Tensor = self.module(self._enter(x))
        return answer

    def check(self, samples: Samples) -> None:
        """Try two samples: the shapes fit, the loss is one number, and no buffer moves."""
        x, y = samples.batch(slice(0, 2))
        plain = Objective(self.module, self.loss, self.device, "plain")
        before = {name: b.clone() for name, b in plain.module.named_buffers()}
        with torch.random.fork_rng(devices=[]):
            try:
                first, grad = plain.loss_and_grad(plain.theta0, x, y, seed=1)
                second, grad_again = plain.loss_and_grad(plain.theta0, x, y, seed=2)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                raise ConfigError(
                    f"the model and loss cannot take a batch with x {tuple(x.shape)} {x.dtype} and "
                    f"y {tuple(y.shape)} {y.dtype}: {str(error).splitlines()[0]}"
                ) from error
        if first.numel() != 1:
            raise ConfigError(
                f"the loss has shape {tuple(first.shape)}; it must be one number, the batch mean"
            )
        for name, buffer in plain.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise ConfigError(
                    f"the model's buffer {name!r} changes in training and cannot be averaged; "
                    "use a layer without running state"
                )
        self.stochastic = not (torch.equal(first, second) and torch.equal(grad, grad_again))
        if self._chain is not None and not same_gradient(self, x, y):
            self._chain, self.kernels = None, "plain"


def same_gradient(objective: Objective, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether our own layers agree with the module, in double precision to keep ties apart."""
    module = copy.deepcopy(objective.module).double()
    ours, torchs = (
        Objective(module, objective.loss, kernels=kernels).grad(
            objective.theta0.double(), x.double(), y, seed=0
        )
        for kernels in ("batch-minor", "plain")
    )
    return torch.allclose(ours, torchs, rtol=1e-8, atol=1e-10)


def refuse_unusable(parameters: Sequence[nn.Parameter]) -> None:
    """One flat vector needs at least one parameter, and one type of number."""
    if not parameters:
        raise ConfigError(
            "the model has no trainable parameter; give a module whose parameters require grad"
        )
    kinds = {p.dtype for p in parameters}
    if len(kinds) > 1:
        raise ConfigError(
            f"the model mixes parameter types {sorted(map(str, kinds))}; convert it to one, "
            "for example with model.float()"
        )


def refuse_running_statistics(module: nn.Module) -> None:
    """Batch norm's running mean and variance are no parameters; averaging them would be wrong."""
    for name, layer in module.named_modules():
        if getattr(layer, "track_running_stats", False):
            raise ConfigError(
                f"layer {name or 'model'!r} ({type(layer).__name__}) keeps running statistics, "
                "which clients with different data cannot share; use GroupNorm, or "
                "track_running_stats=False"
            )


def classes_of(model: nn.Module, samples: Samples) -> int | None:
    """How many classes the model tells apart; none where targets are no labels."""
    x, y = samples.batch(slice(0, 1))
    if y.dim() != 1 or y.is_floating_point():
        return None
    was_training = model.training
    try:
        with torch.no_grad():
            answer = model.eval()(x)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ConfigError(
            f"the model cannot take an input of shape {tuple(x.shape)} {x.dtype}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    finally:
        model.train(was_training)
    return int(answer.shape[1]) if answer.dim() == 2 else None


def default_loss(classes: int | None) -> Loss:
    """Cross-entropy for labels, mean squares for real targets."""
    return nn.functional.mse_loss if classes is None else nn.functional.cross_entropy
