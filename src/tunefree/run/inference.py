"""What a trained model is used for: predictions, and a start for each client's own model."""

from __future__ import annotations

from typing import Any

import torch

from tunefree.core import Vec, stream
from tunefree.data import frames
from tunefree.data.clients import given_inputs
from tunefree.data.samples import Federation, Samples, tensors_of
from tunefree.errors import ConfigError
from tunefree.geometry import descend, directions, units
from tunefree.models.answers import outputs_of, together
from tunefree.models.objective import EVALUATION_BATCH, Objective
from tunefree.models.oracle import DataOracle
from tunefree.models.own import OwnParts
from tunefree.record import Row
from tunefree.run.evaluate import batches_of, scores_on


def predict(objective: Objective, theta: Vec, federation: Federation, x: Any) -> torch.Tensor:
    """The outputs for these inputs; a frame's columns are taken as in the training data."""
    if frames.is_frame(x):
        x = frames.features_of(x, federation.columns or [str(name) for name in x.columns], "x")
    else:
        x, _ = given_inputs(x, "x")
    sizes = {len(tensor) for tensor in tensors_of(x).values()}
    if len(sizes) > 1 or 0 in sizes:
        raise ConfigError(f"x has inputs of lengths {sorted(sizes)}; give as many of each, not 0")
    samples = Samples(x, torch.zeros(sizes.pop()), federation.train.prepare)
    answers = (objective.answer(theta, part) for part, _ in samples.batches(EVALUATION_BATCH))
    outputs: torch.Tensor = together([outputs_of(answer).cpu() for answer in answers])
    return outputs


def personalised(
    objective: Objective,
    federation: Federation,
    theta: Vec,
    own: OwnParts,
    batch_size: int,
    seed: int,
    steps: int,
    eta: float | None,
) -> list[Row]:
    """Each client's scores on its held-out data before and after so many steps of its own.

    Without `eta`, step k = 1..K moves every tensor by its unit times λ 2(K - k + 1) / (K (K + 1))
    along its direction: together λ, PolarFL's path in a client's first round.
    """
    held_out = federation.held_out
    if held_out is None:
        raise ConfigError(
            "scores before and after need data that no client trains on",
            "give them to the run: client_test=[...], or a share of each client's, client_test=0.2",
        )
    r, shapes = units(objective.theta0, objective.shapes), objective.shapes
    path = max(1.0, (steps / 10) ** 0.5) * steps**0.25 / 10**0.75

    def scores(x: Vec, client: int) -> dict[str, float]:
        batches = batches_of(held_out, held_out.parts[client])
        return scores_on(objective, x, batches, federation.classes)

    rows = []
    for client, part in enumerate(federation.parts):
        if not len(held_out.parts[client]):  # of a share of a single sample
            continue
        rng, x = stream(seed, "personalise", client), theta
        F = DataOracle(objective, federation.train, part, batch_size, rng)
        objective.put(own(client))
        before = scores(x, client)
        for k in range(steps):
            g = F.grad(x, F.draw())
            if eta is None:
                step = 2 * path * (steps - k) / (steps * (steps + 1))
                x = descend(x, directions(g, shapes), tuple(step * u for u in r), shapes)
            else:
                x = x - eta * g
        row: Row = {"client": federation.called(client), "n": len(held_out.parts[client])}
        row |= {f"{name}_before": value for name, value in before.items()}
        rows.append(row | {f"{name}_after": value for name, value in scores(x, client).items()})
    return rows
