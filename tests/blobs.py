"""Clients with three Gaussian classes, for tests of a whole training."""

from __future__ import annotations

import torch

Clients = list[tuple[torch.Tensor, torch.Tensor]]


def blobs(clients: int = 6, n: int = 30, seed: int = 0) -> Clients:
    """Three Gaussian classes, split so that every client misses one."""
    rng = torch.Generator().manual_seed(seed)
    centres = 3 * torch.eye(3, 4)
    result = []
    for client in range(clients):
        y = (torch.randint(2, (n,), generator=rng) + client) % 3
        result.append((centres[y] + torch.randn(n, 4, generator=rng), y))
    return result
