"""A module and a loss as a function of one flat vector, and which modules can be one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.func import functional_call

from tunefree.core import Vec
from tunefree.data.samples import Inputs, Samples, each, split
from tunefree.errors import ConfigError
from tunefree.models.answers import (
    Answer,
    call,
    cannot_take,
    check_module,
    copy_of,
    loss_of_model,
    outputs_of,
    takes_labels,
    tensors_in,
)
from tunefree.models.kernels import Chain, chain_of
from tunefree.models.targets import HALVES, InDeviations, Loss, OnOutputs
from tunefree.settings import Kernels

EVALUATION_BATCH = 200  # larger ones exceed the CPU caches
AT_ONCE = 2**22  # numbers in the gradients of single samples that are computed together


class Objective:
    """Loss and gradient of a module at a flat vector theta of its trainable parameters.

    The module given is copied. Frozen parameters and constant buffers stay as they are; buffers
    that change in training are refused. In local training every layer keeps its mode, train
    or eval; in a model that is in eval mode as a whole, all but the frozen layers are trained as
    after model.train(). Parameters of half precision are float32 in theta. `kernels` is how the
    same numbers are computed: "plain" by the module as it is, "channels-last" by the module in
    that memory format, "batch-minor" by our own layers (see kernels.py), "auto" by what suits the
    module.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = nn.functional.cross_entropy,
        device: str | torch.device = "cpu",
        kernels: Kernels = "auto",
        stochastic: bool = True,
    ) -> None:
        check_module(module)
        self.module = copy_of(module).to(device)
        self._modes = training_modes(self.module)
        self._training: bool | None = None  # not set yet
        self._set_training(True)
        refuse_running_statistics(self.module, self._modes)
        self.loss = loss
        self._gives_labels = loss is loss_of_model and takes_labels(self.module)
        self.device = torch.device(device)
        self.stochastic = stochastic  # unless `check` finds otherwise
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.shapes = tuple(tuple(p.shape) for p in self._parameters)
        self._sizes = [p.numel() for p in self._parameters]
        refuse_unusable(self._parameters)
        self.theta0: Vec = torch.cat([full(p.detach()).reshape(-1) for p in self._parameters])
        self._halves = any(p.dtype in HALVES for p in self._parameters)
        self._dtypes = [p.dtype for p in self._parameters]
        self._chain: Chain | None = None
        self.kernels = self._use(kernels)

    def _use(self, wanted: Kernels) -> Kernels:
        """Set up the requested kernels and return which they are."""
        chain = None
        fits = self.loss is nn.functional.cross_entropy and not self._halves
        if fits and self.device.type == "cpu":
            chain = chain_of(self.module)
        if wanted == "auto":
            convolutional = any(isinstance(layer, nn.Conv2d) for layer in self.module.modules())
            wanted = "channels-last" if convolutional else "plain"
            wanted = "batch-minor" if chain else wanted
        if wanted == "batch-minor":
            if chain is None:
                raise ConfigError(
                    "needs a Sequential of convolutions with stride 1, max pooling, ReLU and "
                    "dense layers, cross-entropy and the cpu",
                    "use 'auto'",
                    setting="kernels",
                    value=wanted,
                )
            self._chain = chain
        return wanted

    def __reduce__(self) -> tuple[object, ...]:
        module, loss, device = self.module, self.loss, self.device
        self._set_training(True)  # so that the copy is given the same modes
        return Objective, (module, loss, device, self.kernels, self.stochastic)

    @property
    def d(self) -> int:
        """The number of trainable parameters."""
        return self.theta0.numel()

    def module_at(self, theta: Vec) -> nn.Module:
        """A new module with theta as its parameters, in evaluation mode, not shared with anyone."""
        self._place(theta)
        self._set_training(False)
        module = copy_of(self.module)
        for p in module.parameters():
            p.data = p.data.clone(memory_format=torch.contiguous_format)
        return module

    @property
    def reported(self) -> Loss:
        """The loss in the units of the targets as they were given."""
        return self.loss.given if isinstance(self.loss, InDeviations) else self.loss

    def _place(self, theta: Vec) -> None:
        """Make the parameters views into theta, copied only if they need another format."""
        for p, part, shape in zip(
            self._parameters, torch.split(theta, self._sizes), self.shapes, strict=True
        ):
            p.data = part.view(shape)
            if self.kernels == "channels-last" and len(shape) == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
        if self._halves:
            for p, dtype in zip(self._parameters, self._dtypes, strict=True):
                p.data = p.data.to(dtype)

    def _set_training(self, mode: bool) -> None:
        if self._training is not mode:  # going over all layers at every step would be slow
            for layer, trains in self._modes:
                layer.training = mode and trains
            self._training = mode

    def _answer(self, x: Inputs, y: torch.Tensor | None = None) -> Answer:
        x = each(self._entered, x)
        with_labels = self._gives_labels and y is not None
        return call(self.module, x, labels=y) if with_labels else call(self.module, x)

    def loss_and_grad(self, theta: Vec, x: Inputs, y: torch.Tensor, seed: int) -> tuple[Vec, Vec]:
        """F and ∇F on one batch; `seed` fixes dropout masks, so one xi gives one function."""
        if self._chain is not None:
            return self._chain.loss_and_grad(theta, x, y)
        self._place(theta)
        self._set_training(True)
        if self.stochastic:
            torch.manual_seed(seed)
        y = y.to(self.device)
        loss = self.loss(self._answer(x, y), y)
        grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        if self._halves or any(g is None for g in grads):
            given = zip(grads, self._parameters, strict=True)
            grads = tuple(full(torch.zeros_like(p) if g is None else g) for g, p in given)
        return loss.detach(), torch.cat([g.reshape(-1) for g in grads])

    def grad(self, theta: Vec, x: Inputs, y: torch.Tensor, seed: int) -> Vec:
        """Only ∇F, for which our own layers need not compute the loss."""
        if self._chain is not None:
            return self._chain.grad(theta, x, y)
        return self.loss_and_grad(theta, x, y, seed)[1]

    def sample_grads(
        self, theta: Vec, x: Inputs, y: torch.Tensor, seed: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """∇F on each sample alone, some samples at a time: for every tensor a row per sample."""
        self._set_training(True)
        if self.stochastic:
            torch.manual_seed(seed)
        names = [name for name, p in self.module.named_parameters() if p.requires_grad]

        def loss(parts: tuple[torch.Tensor, ...], x: Inputs, y: torch.Tensor) -> torch.Tensor:
            values = zip(parts, self.shapes, self._dtypes, strict=True)
            placed = {
                name: part.view(shape).to(dtype)
                for name, (part, shape, dtype) in zip(names, values, strict=True)
            }

            def module(*args: torch.Tensor, **kwargs: torch.Tensor) -> Answer:
                return functional_call(self.module, placed, args, kwargs)

            x, y = each(lambda x: x.unsqueeze(0), x), y.unsqueeze(0)
            more = {"labels": y} if self._gives_labels else {}
            return self.loss(call(module, x, **more), y)

        size, parts = max(1, AT_ONCE // self.d), torch.split(theta, self._sizes)
        alone = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        for some, targets in zip(split(x, size), torch.split(y, size), strict=True):
            x = each(lambda x: x.to(self.device), some)
            yield tuple(rows.flatten(1) for rows in alone(parts, x, targets.to(self.device)))

    def check_alone(self, samples: Samples) -> None:
        """Refuse a model for which single samples have no gradients, or wrong ones."""
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training:
                raise ConfigError(
                    f"layer {name!r} ({type(layer).__name__}) uses statistics of a batch, in which "
                    "every record is mixed with others and cannot be protected; use GroupNorm"
                )
        x, y = samples.batch(slice(0, 2))
        try:
            with torch.random.fork_rng(devices=[]):
                rows = [torch.cat(r, 1) for r in self.sample_grads(self.theta0, x, y, seed=0)]
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                "the model cannot be differentiated for single records by torch.func.vmap "
                f"({reason}); protect clients instead of records, or replace the layer that fails"
            ) from error
        if self.stochastic:
            return
        plain = Objective(self.module, self.loss, self.device, "plain", stochastic=False)
        pairs = zip(split(x, 1), torch.split(y, 1), strict=True)
        singly = torch.stack([plain.grad(plain.theta0, one, target, 0) for one, target in pairs])
        if not torch.allclose(
            torch.cat(rows), singly, rtol=1e-2, atol=1e-3 * float(singly.abs().max())
        ):
            raise ConfigError(
                "the model's gradients for single records by torch.func.vmap are not those of "
                "batches of one record; protect clients instead of records"
            )

    def _entered(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.device)
        if self.kernels == "channels-last" and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def outputs(self, theta: Vec, x: Inputs) -> torch.Tensor:
        """The module's outputs in evaluation mode."""
        return outputs_of(self.answer(theta, x))

    @torch.no_grad()
    def answer(self, theta: Vec, x: Inputs, y: torch.Tensor | None = None) -> Answer:
        """The module's answer in evaluation mode; a model with its own loss gets the targets."""
        if self._chain is not None:
            return self._chain.outputs(theta, x)
        self._place(theta)
        self._set_training(False)
        return self._answer(x, y)

    @torch.no_grad()
    def score(self, theta: Vec, x: Inputs, y: torch.Tensor) -> tuple[Answer, torch.Tensor]:
        """The module's answer in evaluation mode, and its loss."""
        answer = self.answer(theta, x, y.to(self.device))
        return answer, self.loss(answer, y.to(self.device))

    def _refuse_lost_outputs(self, x: Inputs, y: torch.Tensor) -> None:
        """Refuse parameters that the loss leaves out, as it gets only one of several outputs."""
        answer = self._answer(x)
        grads = torch.autograd.grad(
            self.loss(answer, y), self._parameters, allow_unused=True, retain_graph=True
        )
        left = [p for p, grad in zip(self._parameters, grads, strict=True) if grad is None]
        others = [t.sum() for t in tensors_in(answer) if t.requires_grad]
        if not left or not others:
            return
        reached = torch.autograd.grad(torch.stack(others).sum(), left, allow_unused=True)
        lost = [id(p) for p, grad in zip(left, reached, strict=True) if grad is not None]
        names = [name for name, p in self.module.named_parameters() if id(p) in lost]
        if names:
            raise ConfigError(
                f"the model returns {len(others)} outputs and the loss gets only one, so that "
                f"{names[0]!r} would not be trained; pass a loss that takes all of them and adds "
                "up their losses, loss=lambda outputs, y: ..."
            )

    def check(self, samples: Samples) -> None:
        """Try a few samples: shapes fit, the loss is one number, no buffer changes."""
        if not torch.is_grad_enabled():
            raise ConfigError(
                "training was started inside torch.no_grad() or torch.inference_mode(), where "
                "there are no gradients; call it outside"
            )
        x, y = samples.batch(slice(0, 2))
        self._set_training(True)
        plain = Objective(self.module, self.loss, self.device, "plain")
        before = {name: b.clone() for name, b in plain.module.named_buffers()}
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            try:
                check_loss_shape(plain.score(plain.theta0, x, y)[1])
                first, grad = plain.loss_and_grad(plain.theta0, x, y, seed=1)
                second, grad_again = plain.loss_and_grad(plain.theta0, x, y, seed=2)
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(cannot_take(self.module, x, y, error)) from error
            try:
                warnings.simplefilter("ignore")  # about shapes, if one sample has lost its axis
                one = each(lambda x: x[:1], x)
                plain.loss_and_grad(plain.theta0, one, y[:1], seed=1)
                plain.score(plain.theta0, one, y[:1])
            except Exception as error:
                reason = str(error).splitlines()[0]
                raise ConfigError(
                    f"the model takes two samples but not one ({reason}), which a client's last "
                    "batch may be; use GroupNorm, not batch norm, and squeeze(1), not squeeze()"
                ) from error
        check_loss_shape(first)
        if isinstance(self.loss, OnOutputs):
            plain._refuse_lost_outputs(x, y)
        for name, buffer in plain.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise ConfigError(
                    f"the model's buffer {name!r} changes in training and cannot be averaged; use "
                    "a layer without running state, or keep this one in eval mode, layer.eval(), "
                    "if its buffer stays as it is then"
                )
        self.stochastic = not (torch.equal(first, second) and torch.equal(grad, grad_again))
        if self._chain is not None and not same_gradient(self, x, y):
            self._chain, self.kernels = None, "plain"


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread, so that sums are the same on any fleet; restores the random state.

    It is also faster for small networks: on a busy machine, threads mostly wait.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def check_loss_shape(loss: object) -> None:
    if not isinstance(loss, torch.Tensor):
        raise ConfigError(
            f"the loss returned a {type(loss).__name__}, not a tensor; it must be one number that "
            "gradients can be taken of: return the tensor alone, without .item()"
        )
    if loss.numel() != 1:
        raise ConfigError(
            f"the loss has shape {tuple(loss.shape)}; it must be one number, the batch mean: "
            "return loss.mean()"
        )


def same_gradient(objective: Objective, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether our own layers agree with the module, in double precision to avoid ties."""
    module, theta = copy.deepcopy(objective.module).double(), objective.theta0.double()
    plain = Objective(module, objective.loss, kernels="plain").grad(theta, x.double(), y, seed=0)
    try:
        ours = Objective(module, objective.loss, kernels="batch-minor").grad(
            theta, x.double(), y, seed=0
        )
    except RuntimeError:  # a layer that looks like one of ours and has other parameters
        return False
    return torch.allclose(ours, plain, rtol=1e-8, atol=1e-10)


def training_modes(module: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Which layers are in train mode during local training, and which stay in eval mode.

    Each keeps its mode, and respects a `train` method of the user's own. A model that is in eval
    mode as a whole was only evaluated before: then all layers are in train mode, except in parts of
    the model that have weights or statistics and nothing to train.
    """
    layers, whole = list(module.modules()), module.training
    given = [layer.training for layer in layers]
    module.train()
    if not whole:
        frozen = {part for layer in layers if is_frozen(layer) for part in layer.modules()}
        given = [layer not in frozen for layer in layers]
    return [(layer, mode and layer.training) for layer, mode in zip(layers, given, strict=True)]


def is_frozen(layer: nn.Module) -> bool:
    """Whether a layer has numbers and none of them is trained."""
    parameters = list(layer.parameters())
    has_numbers = bool(parameters) or any(True for _ in layer.buffers())
    return has_numbers and not any(p.requires_grad for p in parameters)


def full(values: torch.Tensor) -> torch.Tensor:
    """Half precision as float32, in which it is trained and sent."""
    return values.float() if values.dtype in HALVES else values


def refuse_unusable(parameters: Sequence[nn.Parameter]) -> None:
    """One flat vector needs at least one parameter, and one type of number."""
    if not parameters:
        raise ConfigError(
            "the model has no trainable parameter; give a module whose parameters require grad"
        )
    kinds = {torch.float32 if p.dtype in HALVES else p.dtype for p in parameters}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise ConfigError(
            f"the model mixes parameter types {sorted({str(p.dtype) for p in parameters})}; "
            "convert it to one, for example with model.float()"
        )


def refuse_running_statistics(module: nn.Module, modes: Sequence[tuple[nn.Module, bool]]) -> None:
    """Batch norm's running mean and variance are not parameters; averaging them would be wrong."""
    training = {layer for layer, mode in modes if mode}
    for name, layer in module.named_modules():
        if layer in training and getattr(layer, "running_mean", None) is not None:
            raise ConfigError(
                f"layer {name or 'model'!r} ({type(layer).__name__}) keeps running statistics, "
                "which clients with different data cannot share; use GroupNorm, or, to keep the "
                f"statistics of a trained one, put this layer alone into eval mode: model.train(), "
                f"then model.get_submodule({name!r}).eval()"
            )
