"""A module and a loss as a function of one flat vector, and which modules can be one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from tunefree.core import Vec
from tunefree.data.samples import Inputs, Samples, each
from tunefree.errors import ConfigError
from tunefree.geometry import units
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
from tunefree.models.own import (
    Own,
    normalising,
    own_parameters,
    refuse_running_statistics,
)
from tunefree.models.targets import HALVES, InDeviations, Loss, OnOutputs, Weighted
from tunefree.settings import BatchNorm, Kernels, Settings

EVALUATION_BATCH = 200  # larger ones exceed the CPU caches


class Objective:
    """Loss and gradient of a module at a flat vector theta of its trainable parameters.

    The module given is copied. Frozen parameters and constant buffers stay as they are; buffers
    that change in training are refused. In local training every layer keeps its mode, train
    or eval; in a model that is in eval mode as a whole, all but the frozen layers are trained as
    after model.train(). Parameters of half precision are float32 in theta. `kernels` is how the
    same numbers are computed: "plain" by the module as it is, "channels-last" by the module in
    that memory format, "batch-minor" by our own layers (see kernels.py), "auto" by what suits the
    module. Parameters named in `local`, and with `batch_norm` layers' statistics, are in no theta:
    they are the client's own part (see own.py).
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = nn.functional.cross_entropy,
        device: str | torch.device = "cpu",
        kernels: Kernels = "auto",
        stochastic: bool = True,
        local: Sequence[str] = (),
        batch_norm: BatchNorm = "refuse",
    ) -> None:
        check_module(module)
        self.module = copy_of(module).to(device)
        self._modes = training_modes(self.module)
        self._training: bool | None = None  # not set yet
        self._set_training(True)
        refuse_unusable([p for p in self.module.parameters() if p.requires_grad])
        self._local, self._batch_norm = tuple(local), batch_norm
        self.own = self._own_part()
        self.takes_one = True  # a batch of one sample, unless `check` finds otherwise
        self.loss = loss
        self._gives_labels = loss is loss_of_model and takes_labels(self.module)
        self.device = torch.device(device)
        self.stochastic = stochastic  # unless `check` finds otherwise
        self.shared = self._shared_ones()
        self._trained = [*self.shared, *(self.own.parameters if self.own else ())]
        self.shapes = tuple(tuple(p.shape) for p in self.shared)
        self._sizes = [p.numel() for p in self.shared]
        self.theta0: Vec = flat(self.shared)
        self._halves = any(p.dtype in HALVES for p in self._trained)
        self._dtypes = [p.dtype for p in self.shared]
        self._chain: Chain | None = None
        self.kernels = self._use(kernels)

    def _shared_ones(self) -> list[nn.Parameter]:
        """The parameters in theta: all that are trained, but the own ones."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        own = {id(p) for p in self.own.parameters} if self.own else ()
        shared = [p for p in trained if id(p) not in own]
        if not shared:
            raise ConfigError(
                "leaves nothing to train together, as every parameter stays with its client",
                "name fewer parts",
                setting="local",
                value=",".join(self._local),
            )
        return shared

    def _own_part(self) -> Own | None:
        """What stays with each client, if anything does."""
        layers = normalising(self.module, {layer for layer, mode in self._modes if mode})
        if self._batch_norm == "refuse":
            refuse_running_statistics(layers)
            if not self._local:
                return None
        elif not layers:
            raise ConfigError(
                "is for models with batch norm, and no layer of this one keeps running statistics",
                "omit it",
                setting="batch_norm",
                value=self._batch_norm,
            )
        names = list(layers) if self._batch_norm == "local" else []
        affine = [n for n in names if any(p.requires_grad for p in layers[n].parameters())]
        parameters = own_parameters(self.module, [*self._local, *affine])
        statistics = {
            f"{name}.{key}".lstrip("."): buffer
            for name, layer in layers.items()
            for key, buffer in layer.named_buffers()
        }
        trained = [p for p in self.module.parameters() if p.requires_grad]
        everything = flat(trained)
        lengths = units(everything, tuple(tuple(p.shape) for p in trained))
        unit = {id(p): length for p, length in zip(trained, lengths, strict=True)}
        return Own(parameters, statistics, [unit[id(p)] for p in parameters.values()], everything)

    @property
    def initial(self) -> Vec:
        """theta and the own part as they were given."""
        return torch.cat([self.theta0, self.own.first]) if self.own else self.theta0

    def with_loss(self, loss: Loss) -> Objective:
        """The objective of the same module with another loss."""
        kernels = "plain" if self.kernels == "batch-minor" else self.kernels
        more = (self._local, self._batch_norm)
        return Objective(self.module, loss, self.device, kernels, True, *more)

    def within(self, module: nn.Module, loss: Loss) -> Objective:
        """The objective of a module that has this one's as its `module`."""
        kernels = "plain" if self.kernels == "batch-minor" else self.kernels
        local = tuple(f"module.{name}" for name in self._local)
        return Objective(module, loss, self.device, kernels, True, local, self._batch_norm)

    def _use(self, wanted: Kernels) -> Kernels:
        """Set up the requested kernels and return which they are."""
        chain = None
        fits = self.loss is nn.functional.cross_entropy and not self._halves and not self.own
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
                    "dense layers, cross-entropy, the cpu, and that no part stays with clients",
                    "use 'auto'",
                    setting="kernels",
                    value=wanted,
                )
            self._chain = chain
        return wanted

    @classmethod
    def of(
        cls, settings: Settings, module: nn.Module, loss: Loss, device: str | torch.device = "cpu"
    ) -> Objective:
        """The objective that these settings describe."""
        local = names_in(settings.local)
        return cls(module, loss, device, settings.kernels, True, local, settings.batch_norm)

    def __reduce__(self) -> tuple[object, ...]:
        module, loss, device = self.module, self.loss, self.device
        self._set_training(True)  # so that the copy is given the same modes
        self.put(None)
        given = (module, loss, device, self.kernels, self.stochastic, self._local, self._batch_norm)
        return Objective, given, {"takes_one": self.takes_one}

    @property
    def d(self) -> int:
        """The number of trainable parameters."""
        return self.theta0.numel()

    def put(self, own: Vec | None) -> None:
        """Evaluate with this own part from now on; with None, as it was given."""
        if self.own is not None:
            self.own.put(self.own.first if own is None else own)

    def module_at(self, theta: Vec) -> nn.Module:
        """A new module with theta as its parameters, in evaluation mode, not shared with anyone.

        Its own part is the one that was put last.
        """
        self._place(theta)
        self._set_training(False)
        module = copy_of(self.module)
        for p in module.parameters():
            p.data = p.data.clone(memory_format=torch.contiguous_format)
        return module

    @property
    def reported(self) -> Loss:
        """The loss in the units of the targets as they were given, of all samples at once."""
        if isinstance(loss := self.loss, Weighted):
            each = loss.each.given if isinstance(loss.each, InDeviations) else loss.each
            return replace(loss, each=each, overall=True)
        return loss.given if isinstance(loss, InDeviations) else loss

    def targets(self, y: torch.Tensor) -> torch.Tensor:
        """The targets of a batch without the weights beside them."""
        return self.loss.targets(y) if isinstance(self.loss, Weighted) else y

    def _place(self, theta: Vec) -> None:
        """Make the parameters views into theta, copied only if they need another format."""
        for p, part, shape in zip(
            self.shared, torch.split(theta, self._sizes), self.shapes, strict=True
        ):
            p.data = part.view(shape)
            if self.kernels == "channels-last" and len(shape) == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
        if self._halves:
            for p, dtype in zip(self.shared, self._dtypes, strict=True):
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
        grads = torch.autograd.grad(loss, self._trained, allow_unused=True)
        if self._halves or any(g is None for g in grads):
            given = zip(grads, self._trained, strict=True)
            grads = tuple(full(torch.zeros_like(p) if g is None else g) for g, p in given)
        grad = torch.cat([g.reshape(-1) for g in grads])
        if self.own is None:
            return loss.detach(), grad
        shared, self.own.grad = torch.split(grad, [self.d, self.own.trained])
        return loss.detach(), shared

    def grad(self, theta: Vec, x: Inputs, y: torch.Tensor, seed: int) -> Vec:
        """Only ∇F, for which our own layers need not compute the loss."""
        if self._chain is not None:
            return self._chain.grad(theta, x, y)
        return self.loss_and_grad(theta, x, y, seed)[1]

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
            self.loss(answer, y), self._trained, allow_unused=True, retain_graph=True
        )
        left = [p for p, grad in zip(self._trained, grads, strict=True) if grad is None]
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
        plain = Objective(
            self.module, self.loss, self.device, "plain", True, self._local, self._batch_norm
        )
        before = {name: b.clone() for name, b in plain.module.named_buffers()}
        for name in () if plain.own is None else plain.own.names:
            before.pop(name, None)
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
                plain.score(plain.theta0, one, y[:1])
                plain.loss_and_grad(plain.theta0, one, y[:1], seed=1)
            except Exception as error:
                self.takes_one = False
                reason = str(error).splitlines()[0]
                if self._batch_norm == "refuse":
                    raise ConfigError(
                        f"the model takes two samples but not one ({reason}), which a client's "
                        "last batch may be; use GroupNorm, not batch norm, and squeeze(1), not "
                        "squeeze()"
                    ) from error
        check_loss_shape(first)
        if isinstance(self.loss, OnOutputs):
            plain._refuse_lost_outputs(x, y)
        for name, buffer in plain.module.named_buffers():
            if name in before and not torch.equal(buffer, before[name]):
                raise ConfigError(
                    f"the model's buffer {name!r} changes in training and cannot be averaged; use "
                    "a layer without running state, or keep this one in eval mode, layer.eval(), "
                    "if its buffer stays as it is then"
                )
        self.stochastic = not (torch.equal(first, second) and torch.equal(grad, grad_again))
        if self._chain is not None and not same_gradient(self, x, y):
            self._chain, self.kernels = None, "plain"


def names_in(local: str) -> tuple[str, ...]:
    """The names in a setting.

    >>> names_in("head, embed.0")
    ('head', 'embed.0')
    """
    return tuple(word for each in local.split(",") if (word := each.strip()))


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


def flat(parameters: Sequence[nn.Parameter]) -> Vec:
    """All numbers of parameters as one vector."""
    return torch.cat([full(p.detach()).reshape(-1) for p in parameters])


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
