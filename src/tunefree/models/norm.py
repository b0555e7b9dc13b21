"""Batch norm as group norm, which has no statistics of other samples and so none to share."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tunefree.models.answers import copy_of

CHANNELS = 4  # in a group, at least
GROUPS = 32  # at most


def group_norm(model: nn.Module) -> nn.Module:
    """A copy of the model with a group norm in place of every batch norm, with its weights.

    On features without axes in space, all of them are one group, as in layer norm; elsewhere a
    group has at least 4 channels, and there are at most 32. A trained model has to be trained
    again for a while: its running statistics are dropped.

    Args:
        model: Any module; it is left as it is.

    >>> group_norm(nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16)))[1].num_groups
    4
    """
    model = copy_of(model)
    if isinstance(model, _BatchNorm):
        return converted(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, converted(child))
    return model


def converted(layer: _BatchNorm) -> nn.GroupNorm:
    """The group norm with this layer's weights, mode and device."""
    C = layer.num_features
    most = 1 if isinstance(layer, nn.BatchNorm1d) else min(GROUPS, max(1, C // CHANNELS))
    groups = next(n for n in range(most, 0, -1) if C % n == 0)
    norm = nn.GroupNorm(groups, C, eps=layer.eps, affine=layer.affine).train(layer.training)
    if layer.affine:
        norm = norm.to(layer.weight)
        for mine, theirs in ((norm.weight, layer.weight), (norm.bias, layer.bias)):
            mine.data.copy_(theirs.data)
            mine.requires_grad_(theirs.requires_grad)
    return norm
