"""Low-rank adapters beside frozen layers, so that few weights are trained and sent."""

from __future__ import annotations

import torch
from torch import nn

from tunefree.errors import ConfigError


class Adapted(nn.Module):
    """A layer and its adapter: layer(x) + up(down(x)), which starts as layer(x)."""

    def __init__(self, layer: nn.Linear | nn.Conv2d, down: nn.Module, up: nn.Module) -> None:
        super().__init__()
        self.layer, self.down, self.up = layer, down, up
        nn.init.zeros_(self.up.get_parameter("weight"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(x) + self.up(self.down(x))
        return answer

    @property
    def weight(self) -> torch.Tensor:
        """The weight of the one equivalent layer, for attention, which reads it directly."""
        up, down = (part.get_parameter("weight").flatten(1) for part in (self.up, self.down))
        return self.layer.weight + (up @ down).view_as(self.layer.weight)

    @property
    def bias(self) -> torch.Tensor | None:
        return self.layer.bias


def with_adapters(module: nn.Module, rank: int) -> nn.Module:
    """The module with an adapter for every linear and convolutional layer, and all else frozen.

    Grouped convolutions get none. Layers that keep running statistics keep those they have.
    """
    module.requires_grad_(False)
    module.eval()
    found: dict[nn.Module, Adapted] = {}  # a layer that is used twice has one adapter
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and (adapter := adapted(layer, rank)):
            found[layer] = adapter
    if not found:
        raise ConfigError(
            "needs a model with linear or convolutional layers, and this "
            f"{type(module).__name__} has none",
            "choose another model, or omit {lora}",
            setting="lora",
            value=rank,
        )
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child in found:
                parent._modules[name] = found[child]
    return found.get(module, module)


def adapted(layer: nn.Linear | nn.Conv2d, rank: int) -> Adapted | None:
    """The layer with an adapter of this rank beside it, of its own type and on its own device."""
    down: nn.Linear | nn.Conv2d
    up: nn.Linear | nn.Conv2d
    if isinstance(layer, nn.Linear):
        down = nn.Linear(layer.in_features, rank, bias=False)
        up = nn.Linear(rank, layer.out_features, bias=False)
    elif layer.groups > 1:
        return None
    else:
        down = nn.Conv2d(
            layer.in_channels,
            rank,
            pair(layer.kernel_size),
            pair(layer.stride),
            layer.padding if isinstance(layer.padding, str) else pair(layer.padding),
            pair(layer.dilation),
            bias=False,
            padding_mode=layer.padding_mode,
        )
        up = nn.Conv2d(rank, layer.out_channels, 1, bias=False)
    return Adapted(layer, down.to(layer.weight), up.to(layer.weight))


def pair(size: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = size
    return rows, columns
