"""Faster gradients for chains of common layers, the same numbers up to rounding.

On a CPU, small convolutions spend their time outside the arithmetic. Here a chain of layers keeps
the batch as the innermost axis ("batch-minor"): a convolution is one copy of patches and a few
matrix products, pooling and ReLU run along the batch, and every parameter's gradient is written
straight into its place in the flat vector. Convolutions with many channels are torch's own, with
the channel innermost; only the memory order differs, never the order of the axes. A layer is a pair
of functions; nothing else is traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import nn

from tunefree.core import Vec

MANY = 16  # input channels of a convolution, from which torch's own is faster
COLOURS = 2  # or of the first layer, which returns no gradient
Saved: TypeAlias = Any  # what a layer's forward saves for its backward
Views: TypeAlias = Sequence[torch.Tensor]  # one per parameter, in order


class Layer(Protocol):
    """One link: images are (channels, height, width, batch), flat features (features, batch)."""

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        """The output, and what backward needs."""

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        """Write the parameters' gradients; return the input's, which the first layer may skip."""


class Dense(NamedTuple):
    """W x + b."""

    at: int  # index of the weight among the parameters; the bias follows

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        weight = theta[self.at]
        return torch.addmm(theta[self.at + 1].unsqueeze(1), weight, x), (x, weight)

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        x, weight = saved
        torch.mm(g, x.t(), out=grads[self.at])
        torch.sum(g, dim=1, out=grads[self.at + 1])
        return g if first else weight.t() @ g


class Conv(NamedTuple):
    """A convolution with stride 1, as one product for each row of the kernel.

    Patches are laid out along the width alone: under a row of the kernel, those of all rows of the
    image are one stretch of memory, which starts one image row later for each row of the kernel.
    """

    at: int
    padding: tuple[int, int]

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        weight = theta[self.at]
        out_channels, channels, high, wide = weight.shape
        rows, columns = self.padding
        if rows or columns:
            x = nn.functional.pad(x, (0, 0, columns, columns, rows, rows))
        height, width, batch = x.shape[1] - high + 1, x.shape[2] - wide + 1, x.shape[3]
        c, h, w, b = x.stride()
        patches = x.as_strided((channels, wide, x.shape[1], width, batch), (c, w, h, w, b)).reshape(
            channels * wide, -1
        )
        kernel = weight.permute(2, 0, 1, 3).reshape(high, out_channels, -1)
        under = stretches(patches, high, height * width * batch)
        out = torch.addmm(theta[self.at + 1].unsqueeze(1), kernel[0], under[0])
        for row, stretch in zip(kernel[1:], under[1:], strict=True):
            out.addmm_(row, stretch)
        return out.view(out_channels, height, width, batch), (x.shape, kernel, patches)

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        shape, kernel, patches = saved
        grad = grads[self.at]
        out_channels, channels, high, wide = grad.shape
        width, batch = g.shape[2:]
        g = g.reshape(out_channels, -1)
        for i, stretch in enumerate(stretches(patches, high, g.shape[1])):
            grad[:, :, i] = torch.mm(g, stretch.t()).view(out_channels, channels, wide)
        torch.sum(g, dim=1, out=grads[self.at + 1])
        if first:
            return g
        spread = torch.zeros_like(patches)
        for row, stretch in zip(kernel, stretches(spread, high, g.shape[1]), strict=True):
            stretch.addmm_(row.t(), g)
        spread = spread.view(channels, wide, shape[1], width, batch)
        back = g.new_zeros(shape)
        for j in range(wide):
            back[:, :, j : j + width].add_(spread[:, j])
        rows, columns = self.padding
        return back[:, rows : shape[1] - rows, columns : shape[2] - columns]


def stretches(patches: torch.Tensor, high: int, length: int) -> list[torch.Tensor]:
    """What is under each row of the kernel, as views."""
    step = (patches.shape[1] - length) // max(1, high - 1)  # one row of the image
    return [patches[:, i * step : i * step + length] for i in range(high)]


class WideConv(NamedTuple):
    """A convolution with stride 1 by torch's own, channels innermost: faster if there are many."""

    at: int
    padding: tuple[int, int]

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        x, weight = channels_last(x.permute(3, 0, 1, 2)), channels_last(theta[self.at])
        out = torch.conv2d(x, weight, theta[self.at + 1], padding=self.padding)
        return out.permute(1, 2, 3, 0), (x, weight)

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        x, weight = saved
        g = channels_last(g.permute(3, 0, 1, 2))
        back, grad, _ = torch.ops.aten.convolution_backward(
            g, x, weight, None, [1, 1], self.padding, [1, 1], False, [0, 0], 1,
            [not first, True, False],
        )  # fmt: skip
        grads[self.at].copy_(grad)
        torch.sum(g, dim=(0, 2, 3), out=grads[self.at + 1])
        return g if first else back.permute(1, 2, 3, 0)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class Relu(NamedTuple):
    """max(x, 0)."""

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        y = x.clamp_min(0)
        return y, y

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        if g.stride() != saved.stride():  # two memory orders in one pass would be slow
            g = torch.empty_like(saved).copy_(g)
        back: torch.Tensor = torch.ops.aten.threshold_backward(g, saved, 0)
        return back


BATCH_MINOR = (0, 3, 1, 2), (0, 2, 3, 1)  # our axes as torch's, and back
CHANNEL_MINOR = (3, 0, 1, 2), (1, 2, 3, 0)


class MaxPool(NamedTuple):
    """The largest of each square; what is innermost takes the place of torch's channels."""

    size: int

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        channel_minor = x.stride(0) < x.stride(3)
        there, back = CHANNEL_MINOR if channel_minor else BATCH_MINOR
        x = x.permute(there)
        y, places = nn.functional.max_pool2d(x, self.size, return_indices=True)
        return y.permute(back), (x, places, there, back)

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        x, places, there, back = saved
        size = [self.size, self.size]
        spread: torch.Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            channels_last(g.permute(there)), x, size, size, [0, 0], [1, 1], False, places
        )
        return spread.permute(back)


class Flatten(NamedTuple):
    """Images to features; only the view changes."""

    def forward(self, x: torch.Tensor, theta: Views) -> tuple[torch.Tensor, Saved]:
        return x.reshape(-1, x.shape[-1]), x.shape

    def backward(self, g: torch.Tensor, saved: Saved, grads: Views, first: bool) -> torch.Tensor:
        return g.view(saved)


class Chain:
    """A module as a list of layers."""

    def __init__(self, layers: Sequence[Layer], shapes: Sequence[torch.Size]) -> None:
        self.layers = layers
        self._shapes = shapes
        self._sizes = [shape.numel() for shape in shapes]
        self._images = isinstance(layers[0], Conv | WideConv | MaxPool)

    def _views(self, flat: Vec) -> Views:
        parts = flat.split_with_sizes(self._sizes)  # without the detour of torch.split
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _enter(self, x: torch.Tensor) -> torch.Tensor:
        if not self._images:
            return x.flatten(1).t()
        x = x.permute(1, 2, 3, 0)
        return x if isinstance(self.layers[0], WideConv) else x.contiguous()

    def outputs(self, theta: Vec, x: torch.Tensor) -> torch.Tensor:
        """What the module answers, batch first."""
        return self._forward(theta, x)[0].t()

    def loss_and_grad(self, theta: Vec, x: torch.Tensor, y: torch.Tensor) -> tuple[Vec, Vec]:
        """Mean cross-entropy and its gradient."""
        out, saved = self._forward(theta, x)
        log_p = torch.log_softmax(out, dim=0)
        loss = nn.functional.nll_loss(log_p.t(), y)
        return loss, self._backward(theta, log_p.exp_(), saved, y)

    def grad(self, theta: Vec, x: torch.Tensor, y: torch.Tensor) -> Vec:
        """The gradient alone."""
        out, saved = self._forward(theta, x)
        return self._backward(theta, torch.softmax(out, dim=0), saved, y)

    def _forward(self, theta: Vec, x: torch.Tensor) -> tuple[torch.Tensor, list[Saved]]:
        views, x = self._views(theta), self._enter(x)
        saved = []
        for layer in self.layers:
            x, for_backward = layer.forward(x, views)
            saved.append(for_backward)
        return x, saved

    def _backward(self, theta: Vec, p: torch.Tensor, saved: list[Saved], y: torch.Tensor) -> Vec:
        """It starts with softmax minus one at the right class, over the batch; p is overwritten."""
        share = 1 / y.numel()
        g = p.mul_(share).scatter_(0, y.unsqueeze(0), -share, reduce="add")
        grad = torch.empty_like(theta)
        grads = self._views(grad)
        for place in reversed(range(len(saved))):
            g = self.layers[place].backward(g, saved[place], grads, place == 0)
        return grad


def chain_of(module: nn.Module) -> Chain | None:
    """The module as a chain, if it is a sequence of layers that are known here."""
    if not isinstance(module, nn.Sequential):
        return None
    layers: list[Layer] = []
    at, images = 0, False
    for number, part in enumerate(parts_of(module)):
        layer = layer_of(part, at)
        if layer is None or not all(p.requires_grad for p in part.parameters()):
            return None
        images = images or isinstance(layer, Conv | WideConv)
        if isinstance(layer, Flatten) and not images:
            if number:
                return None
            continue  # entering flattens already
        images = images and not isinstance(layer, Flatten)
        if isinstance(layer, Dense) == images and isinstance(
            layer, Dense | Conv | WideConv | MaxPool
        ):
            return None
        layers.append(layer)
        at += len(list(part.parameters()))
    shapes = [p.shape for p in module.parameters()]
    ends_in_classes = bool(layers) and not images and len(shapes) == at
    return Chain(layers, shapes) if ends_in_classes else None


def parts_of(module: nn.Sequential) -> Iterator[nn.Module]:
    for part in module:
        if isinstance(part, nn.Sequential):
            yield from parts_of(part)
        else:
            yield part


def layer_of(part: nn.Module, at: int) -> Layer | None:
    """The layer that does exactly what this module does, if there is one."""
    match part:
        case nn.Linear(bias=torch.Tensor()):
            return Dense(at)
        case nn.Conv2d(
            stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros",
            bias=torch.Tensor(), padding=(int(rows), int(columns)),
        ):  # fmt: skip
            many = part.in_channels >= (MANY if at else COLOURS)
            return (WideConv if many else Conv)(at, (rows, columns))
        case nn.MaxPool2d(
            kernel_size=int(size), stride=stride, padding=0, dilation=1,
            ceil_mode=False, return_indices=False,
        ) if stride == size:  # fmt: skip
            return MaxPool(size)
        case nn.ReLU():
            return Relu()
        case nn.Flatten(start_dim=1, end_dim=-1):
            return Flatten()
    return None
