"""The bare loop: FedAvg written by hand in PyTorch, as a baseline for our speed.

Nothing of our engine is used: a module, its gradients, an in-place step, an average. The data are
standardised floats from the start, which saves it a conversion that we do in every batch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import nn

from tunefree import models
from tunefree_evidence.speed.workloads import Workload, federation

ETA = 0.01
Weights = list[torch.Tensor]


class Loop:
    """One process: trains clients one after the other, on a copy of the model each."""

    def __init__(self, w: Workload) -> None:
        self._w = w
        data = federation(w)
        self._x, self._y = data.train.batch(slice(None))
        self.model = models.build(w.model, data.train.input_shape, w.classes, w.options)

    def client(self, weights: Weights, number: int, seed: int) -> Weights:
        """The weights after K steps of SGD on the client's samples."""
        w, model = self._w, copy.deepcopy(self.model)
        parameters = list(model.parameters())
        with torch.no_grad():
            for p, value in zip(parameters, weights, strict=True):
                p.copy_(value)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(w.samples, generator=generator) + number * w.samples
        for k in range(w.K):
            batch = order[(k * w.batch) % w.samples :][: w.batch]
            loss = nn.functional.cross_entropy(model(self._x[batch]), self._y[batch])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for p, gradient in zip(parameters, gradients, strict=True):
                    p.sub_(gradient, alpha=ETA)
        return [p.detach() for p in parameters]


def cohort(w: Workload, t: int) -> list[int]:
    return torch.randperm(w.N, generator=torch.Generator().manual_seed(t))[: w.S].tolist()


def average(all_weights: list[Weights]) -> Weights:
    return [torch.stack(each).mean(dim=0) for each in zip(*all_weights, strict=True)]


def in_one_process(w: Workload) -> Iterator[None]:
    """Endless rounds, with torch's default number of threads."""
    loop = Loop(w)
    weights = [p.detach().clone() for p in loop.model.parameters()]
    t = 0
    while True:
        weights = average([loop.client(weights, i, t) for i in cohort(w, t)])
        t += 1
        yield


def in_processes(w: Workload, workers: int) -> Iterator[None]:
    """Endless rounds, clients split across processes with one thread each."""
    with ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=start_worker, initargs=(w,)
    ) as pool:
        module = Loop(w).model
        weights = [p.detach().clone() for p in module.parameters()]
        t = 0
        while True:
            jobs = [pool.submit(work, weights, i, t) for i in cohort(w, t)]
            weights = average([job.result() for job in jobs])
            t += 1
            yield


LOOPS: list[Loop] = []  # one in each worker process


def start_worker(w: Workload) -> None:
    torch.set_num_threads(1)
    LOOPS.append(Loop(w))


def work(weights: Weights, number: int, seed: int) -> Weights:
    return LOOPS[0].client(weights, number, seed)
