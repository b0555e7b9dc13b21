"""FedAvg on workload A or B in FedJAX; it runs as many rounds as each input line says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import sizes


def cnn(x: Any) -> Any:
    return hk.Sequential(
        [
            hk.Conv2D(10, 5, padding="VALID"), hk.MaxPool(2, 2, padding="VALID"), jax.nn.relu,
            hk.Conv2D(20, 5, padding="VALID"), hk.MaxPool(2, 2, padding="VALID"), jax.nn.relu,
            hk.Flatten(), hk.Linear(50), jax.nn.relu, hk.Linear(10),
        ]
    )(x[..., None])  # fmt: skip


def logistic(x: Any) -> Any:
    return hk.Linear(10)(hk.Flatten()(x))


def rounds(workload: str) -> Iterator[None]:
    x, y = sizes.client_data()
    data = fedjax.InMemoryFederatedData({i: {"x": x[i], "y": y[i]} for i in range(sizes.N)})
    network = hk.without_apply_rng(hk.transform({"A": cnn, "B": logistic}[workload]))

    def loss(params: Any, batch: Any, _: Any) -> Any:
        log_p = jax.nn.log_softmax(network.apply(params, batch["x"]))
        return -jnp.take_along_axis(log_p, batch["y"][:, None], axis=1).mean()

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(sizes.ETA),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(sizes.BATCH, num_epochs=None, num_steps=sizes.K),
    )
    state = algorithm.init(network.init(jax.random.PRNGKey(0), x[0, :1]))
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, sizes.S, seed=0)
    while True:
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        assert all(np.isfinite(p).all() for p in jax.tree_util.tree_leaves(state.params))
        yield


if __name__ == "__main__":
    sizes.take_turns(rounds(sys.argv[1]))
