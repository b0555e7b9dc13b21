"""What follows from the data and the files that settings name, for everything that starts a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

import tunefree.models
from tunefree.core import Vec
from tunefree.data import partition, sources, user_data
from tunefree.data.samples import Dataset, Federation, check_federation, held_out, with_own_tests
from tunefree.errors import ConfigError
from tunefree.methods import registry
from tunefree.models import weights
from tunefree.models.lora import with_adapters
from tunefree.models.objective import Objective
from tunefree.models.own import NOBODY, OwnParts
from tunefree.models.scaling import standardised
from tunefree.models.targets import default_loss
from tunefree.record import BEST, SERVER, Facts, Record
from tunefree.record.file import reads
from tunefree.record.provenance import MODEL, fingerprint
from tunefree.settings import Settings, load, read, restored


def settings(path: Path | None, given: Mapping[str, object]) -> Settings:
    """The settings of a TOML file and single ones by name, and those that follow from the data.

    If a user's own data name their clients, these are used unless another partition is given. The
    fingerprints of the data and of the weights to start from are settings, so that no run resumes,
    or counts as finished, with others.
    """
    chosen = load(path, given)
    if sources.describe(chosen.data) is None:
        chosen = load(None, following(chosen, {**read(path), **given}))
    return with_start(chosen)


def following(chosen: Settings, given: Mapping[str, object]) -> dict[str, object]:
    """The given settings, before them those that follow from the user's own data."""
    data = named_dataset(chosen)
    follows: dict[str, object] = {"data_fingerprint": user_data.fingerprint(data)}
    if data.groups is not None:
        follows["partition"] = "natural"
        if given.get("partition", "natural") == "natural":
            follows["clients"] = len(set(data.groups.tolist()))
    elif data.classes is None:
        follows["partition"] = "iid"  # there are no labels to partition by
    return {**follows, **given}


def with_start(chosen: Settings) -> Settings:
    """The settings with the fingerprint of the weights that they start from."""
    if not chosen.start or chosen.start_fingerprint:
        return chosen
    return replace(chosen, start_fingerprint=weights.fingerprint(start_of(chosen)))


def named_dataset(chosen: Settings) -> Dataset:
    """The data set that the settings name."""
    options = dict(chosen.data_option)
    if chosen.data_fingerprint:
        options["fingerprint"] = chosen.data_fingerprint
    return sources.load(chosen.data, chosen.data_dir or None, **options)


def named_data(chosen: Settings) -> tuple[Dataset, Federation]:
    """The data set that the settings name, and its split across clients."""
    dataset = named_dataset(chosen)
    labels = dataset.train.y.numpy()
    parts = partition.from_spec(
        chosen.partition, labels, chosen.clients, chosen.seed, dataset.groups
    )
    test = dataset.test
    if chosen.validation:
        parts, test = held_out(dataset.train, parts, chosen.validation, chosen.seed)
    names = dataset.clients if chosen.partition == "natural" else ()
    federation = Federation(
        dataset.train,
        parts,
        test,
        dataset.classes,
        chosen.data,
        names=names if len(names) == len(parts) else (),
        labels=dataset.names,
    )
    federation = check_federation(federation)
    return dataset, with_own_tests(federation, chosen.client_test, chosen.seed)


def named(chosen: Settings) -> tuple[Settings, Objective, Federation]:
    """The model and the data that the settings name; in those returned the model has a name."""
    registry.check(chosen.algorithm, registry.options_of(chosen), chosen.explicit_steps)
    dataset, federation = named_data(chosen)
    chosen = with_start(replace(chosen, model=chosen.model or dataset.model))
    objective = named_objective(chosen, dataset)
    objective = standardised(objective, federation) if chosen.standardise else objective
    return chosen, objective, federation


def named_objective(chosen: Settings, dataset: Dataset) -> Objective:
    """The objective of the model that the settings or the data set name."""
    name, seed = chosen.model or dataset.model, chosen.seed
    shape, classes = dataset.train.input_shape, dataset.classes
    module = tunefree.models.build(name, shape, classes, chosen.model_option, seed)
    if chosen.start:
        weights.put(module, start_of(chosen), chosen.start)
    if chosen.lora:
        module = tunefree.models.seeded(
            lambda: with_adapters(module, chosen.lora), seed, "adapters"
        )
    return Objective.of(chosen, module, default_loss(classes), usable(chosen.device))


def usable(device: str) -> torch.device:
    """The device, after checking that it can store a tensor."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"cannot be used here ({str(error).split('. ')[0].splitlines()[0]})",
            "use cpu, or cuda where there is a GPU",
            setting="device",
            value=device,
        ) from error
    return torch.device(device)


def start_of(chosen: Settings) -> weights.State:
    """The weights to start from: the model of a run file as last committed, or a state dict."""
    path, wanted = Path(chosen.start), chosen.start_fingerprint
    if not path.is_file():
        raise ConfigError(
            "does not exist",
            f"give a run file, or a state dict that ends in {' or '.join(weights.FILES)}",
            setting="start",
            value=chosen.start,
        )
    if path.suffix in weights.FILES:
        state = weights.read(path)
    else:
        with closing(Record.open(path)) as record:
            state = {name: torch.from_numpy(each) for name, each in state_dict(record).items()}
    if wanted and (found := weights.fingerprint(state)) != wanted:
        raise ConfigError(
            f"has changed: its weights had the fingerprint {wanted}, and now it is {found}",
            "give them as they were, or start a new run",
            setting="start",
            value=chosen.start,
        )
    return state


def theta_of(record: Record, best: bool = False) -> NDArray[Any]:
    """The model trained so far, or the best one that was evaluated, as one vector."""
    vectors = record.vectors(BEST if best else SERVER)
    if "theta" not in vectors:
        what = "evaluated model" if best else "model yet: no step was committed"
        raise ConfigError(f"'{record.path}' contains no {what}")
    return vectors["theta"]


def own_parts(record: Record) -> OwnParts:
    """The parts of the model that clients have for themselves; with BEST that of the best model."""
    facts = record.facts()

    def own_of(owner: int) -> Vec | None:
        found = record.vectors(owner).get("own")
        return None if found is None else torch.from_numpy(found)

    return OwnParts(own_of, facts.system["N"]) if facts.local or facts.batch_norm else NOBODY


@reads
def state_dict(record: Record) -> dict[str, NDArray[Any]]:
    """Name -> tensor of the model trained so far, including untrained tensors of a named model."""
    facts, theta = record.facts(), theta_of(record)
    with_model = f"use tunefree.load({str(record.path)!r}, model) in Python"
    if not facts.tensors:
        raise ConfigError(
            f"'{record.path}' was made by an earlier tunefree, which did not store the names of "
            f"the model's tensors; {with_model}"
        )
    fixed = [name for name, _, place in facts.tensors if place < 0]
    if fixed and not facts.by_name:
        raise ConfigError(
            f"{fixed[0]!r} of the model was not trained, and '{record.path}' has only what was; "
            f"{with_model}"
        )
    others = untrained(facts, record) if fixed else {}
    return {
        name: others[name]
        if place < 0
        else theta[place : place + math.prod(shape)].reshape(shape).copy()
        for name, shape, place in facts.tensors
    }


def untrained(facts: Facts, record: Record) -> dict[str, NDArray[Any]]:
    """Frozen parameters and buffers of a named model, which is built again."""
    _, objective, _ = named(restored(facts.settings))
    if fingerprint(objective.initial.cpu().numpy()) != facts.identity.get(MODEL):
        raise ConfigError(
            f"now builds another model than when '{record.path}' was started",
            "restore the model that it was started with",
            setting="model",
            value=facts.model,
        )
    objective.put(own_parts(record).mean)
    return {name: each.cpu().numpy() for name, each in objective.module.state_dict().items()}
