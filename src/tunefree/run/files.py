"""What a run file gives back without training: its model, and its clients' scores."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from tunefree.derive import named, own_parts, theta_of
from tunefree.errors import ConfigError, refuses_unknown
from tunefree.models.answers import check_module, device_of
from tunefree.models.objective import Objective, names_in
from tunefree.models.scaling import Standardised
from tunefree.record import BEST, Record, Row
from tunefree.record.provenance import check_frozen
from tunefree.run import evaluate
from tunefree.settings import restored


@refuses_unknown
def load(
    path: str | Path,
    model: nn.Module | None = None,
    *,
    best: bool = False,
    client: int | str | None = None,
) -> nn.Module:
    """A copy of the model with the parameters of a run file, as last committed, ready to use.

    Parts that stay with clients are the mean of theirs, and those of a deployment, whose file does
    not have them, are as in the model given.

    Args:
        path: The run file.
        model: The module that the run was given, as the file contains only what was trained. Not
            needed for a run of the command line.
        best: The evaluated model with the best score, in place of the last one.
        client: With the parts of the model that this client has for itself.

    >>> from tempfile import TemporaryDirectory
    >>> from tunefree import train
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> with TemporaryDirectory() as folder:
    ...     file = f"{folder}/a.sqlite"
    ...     run = train(nn.Linear(4, 3), clients, rounds=2, out=file, progress=False)
    ...     load(file, nn.Linear(4, 3))
    Linear(in_features=4, out_features=3, bias=True)
    """
    with closing(Record.open(Path(path))) as record:
        facts, theta = record.facts(), torch.from_numpy(theta_of(record, best))
        parts, number = own_parts(record), None if client is None else facts.number(client)
        own = parts(BEST) if best else parts.mean if number is None else parts(number)
    if model is None:
        if not facts.by_name:
            raise ConfigError(
                f"'{path}' does not contain the module; give the one it has trained: "
                "tunefree.load(path, model)"
            )
        objective = named(restored(facts.settings))[1]
    else:
        check_module(model)
        kept, loss = (names_in(facts.local), facts.batch_norm or "refuse"), nn.functional.mse_loss
        objective = Objective(model, loss, device_of(model), "plain", True, *kept)
        if facts.scaling:
            objective = objective.within(Standardised(model, facts.scaling), loss)
    here = [list(shape) for shape in objective.shapes]
    trained = {place: list(shape) for _, shape, place in facts.tensors if place >= 0}
    there = [trained[place] for place in sorted(trained)]
    if len(theta) != objective.d or (there and here != there):
        raise ConfigError(
            f"the model does not fit '{path}': it has {objective.d} trainable parameters in "
            f"tensors of shapes {here}, and the run {len(theta)} in {there or 'some'}; give the "
            "model that was trained"
        )
    check_frozen(facts, objective, Path(path))
    objective.put(None if own is None else own.to(objective.theta0))
    return objective.module_at(theta.to(objective.theta0))


def client_scores(path: Path) -> list[Row]:
    """Scores on each client's training data, for a run of the command line as last committed."""
    with closing(Record.open(path)) as record:
        facts = record.facts()
        if not facts.by_name:
            raise ConfigError(
                f"'{path}' does not contain its clients' data; in Python: "
                "tunefree.Run.resume(path, model, clients).client_scores()"
            )
        theta, own = torch.from_numpy(theta_of(record)), own_parts(record)
        _, objective, federation = named(restored(facts.settings))
        return evaluate.client_scores(objective, theta.to(objective.theta0), federation, own)
