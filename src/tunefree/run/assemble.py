"""The builder: from settings, from a user's model and clients, or from a run file, to a run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from tunefree.core import Algorithm, Server
from tunefree.data.clients import federation_from
from tunefree.data.loaders import check_loaders
from tunefree.data.samples import Federation, check_federation, with_own_tests
from tunefree.derive import named, usable
from tunefree.errors import ConfigError
from tunefree.fleet import choice, summed
from tunefree.fleet.attack import from_spec as attack_of
from tunefree.fleet.states import arrays
from tunefree.fleet.work import DataClients
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models.answers import inputs_of
from tunefree.models.objective import Objective
from tunefree.models.oracle import refuse_single_samples
from tunefree.models.scaling import note_scale, standardised
from tunefree.models.targets import Loss, task_of, weighted
from tunefree.privacy.coins import Coins, Turns
from tunefree.privacy.leaves import brought, refuse
from tunefree.privacy.promise import Guarantee, Privacy
from tunefree.privacy.records import PrivateOracles, RecordGuarantee
from tunefree.privacy.records import guarantee as record_guarantee
from tunefree.privacy.release import in_simulation
from tunefree.record import Facts, Record
from tunefree.record.provenance import MODEL, changes, describe, identify
from tunefree.record.summary import own_measures
from tunefree.run.engine import Parts
from tunefree.run.evaluate import Evaluator, Measure
from tunefree.schedule.membership import Everybody
from tunefree.schedule.simulate import Simulation, check
from tunefree.settings import Settings, restored


class Functions(NamedTuple):
    """A user's own functions, which no file stores."""

    algorithm: Maker | None = None
    loss: Loss | None = None
    evaluate: Measure | None = None


NO_FUNCTIONS = Functions()


def of_settings(
    settings: Settings,
    facts: Mapping[str, Any] = {},
    earlier: Settings | None = None,
    evaluate: Measure | None = None,
) -> Parts:
    """The run of settings that name its data and its model."""
    settings, objective, federation = named(settings)
    settings = replace(settings, out=settings.out or str(new_path(settings)))
    functions = Functions(evaluate=evaluate)
    return assemble(settings, objective, federation, functions, facts, earlier)


def of_model(
    settings: Settings,
    model: nn.Module,
    federation: Federation,
    functions: Functions = NO_FUNCTIONS,
    facts: Mapping[str, Any] = {},
    earlier: Settings | None = None,
) -> Parts:
    """The run of a user's own model and clients, checked."""
    if settings.start or settings.lora:
        raise ConfigError(
            "is for models by name",
            "give your own with its weights and adapters in it, and omit this",
            setting="start" if settings.start else "lora",
        )
    federation = with_own_tests(federation, settings.client_test, settings.seed)
    task = task_of(model, federation.train, functions.loss)
    federation = check_federation(task.of(federation))
    objective = Objective.of(settings, model, task.loss, usable(settings.device))
    objective = standardised(objective, federation) if settings.standardise else objective
    loss, federation = weighted(objective.loss, federation)
    objective = objective if loss is objective.loss else objective.with_loss(loss)
    facts = {"door": "train", **facts}
    return assemble(settings, objective, federation, functions, facts, earlier)


def of_file(
    path: Path,
    model: nn.Module | None = None,
    clients: Any = None,
    test: Any = None,
    functions: Functions = NO_FUNCTIONS,
    rounds: int | None = None,
    client_test: Any = None,
    **where: Any,
) -> Parts:
    """The run in a file, to be continued on this fleet, perhaps to other rounds.

    One of the command line needs only its file; one of `train` also model, clients and functions.
    """
    with closing(Record.open(path)) as record:
        facts = record.facts()
    if facts.deployed:
        raise ConfigError(
            f"'{path}' belongs to a deployed federation; resume it with {facts.how_to_resume(path)}"
        )
    earlier = replace(restored(facts.settings), out=str(path), **where)
    now = earlier if rounds is None else replace(earlier, rounds=rounds)
    if facts.by_name:
        return of_settings(now, {}, earlier, functions.evaluate)
    if model is None or clients is None:
        raise ConfigError(
            f"'{path}' was made by tunefree.train and does not contain model and data; resume it "
            "in Python, where you give them again: tunefree.resume(path, model, clients)"
        )
    if not facts.algorithm and functions.algorithm is None:
        raise ConfigError(
            f"the algorithm of '{path}' was your own, which is not stored in it; give it "
            "again: tunefree.resume(path, model, clients, algorithm=...)"
        )
    federation = federation_from(clients, test, takes=inputs_of(model), client_test=client_test)
    if len(federation) != earlier.clients:
        raise ConfigError(
            f"'{path}' was started with {earlier.clients} clients, and now there are "
            f"{len(federation)}; give the ones it was started with"
        )
    for what, then, given in (
        ("clients", facts.names, federation.names),
        ("classes", facts.classes_named, federation.labels),
    ):
        if list(then) != list(given):
            raise ConfigError(
                f"'{path}' was started with {what} called {', '.join(then) or 'nothing'}, and now "
                f"they are called {', '.join(given) or 'nothing'}; give those names, in that order"
            )
    return of_model(now, model, federation, functions, earlier=earlier)


def assemble(
    settings: Settings,
    objective: Objective,
    federation: Federation,
    functions: Functions = NO_FUNCTIONS,
    facts: Mapping[str, Any] = {},
    earlier: Settings | None = None,
) -> Parts:
    """Everything checked and ready, in this process and its workers; nothing trained yet.

    `facts` are stored in the run file beside the settings; `earlier` are the settings of a run to
    resume.
    """
    sizes, make = federation.parts.sizes, functions.algorithm
    algo = registry.configure(settings, settings.system_for(sizes), objective.shapes, make)
    registry.note_no_momentum(algo)
    check(settings.scheduling, algo)
    check_loaders(federation, settings.batch_size, algo.sys.K, settings.local_epochs)
    summed.refuse(algo, settings)
    privacy = Privacy.of(settings)
    guarantee: Guarantee | RecordGuarantee | None = None
    private, oracles, spent = None, None, None
    before = None if earlier is None else Path(settings.out)
    if privacy is not None:
        refuse(algo, settings, brought(objective.loss, federation))
    if privacy is not None and privacy.unit == "record":
        objective.check_alone(federation.train)
        records, theta0 = privacy.records or float(sizes.mean()), objective.theta0
        guarantee = kept = (
            record_guarantee(privacy, algo, theta0, records, settings.batch_size)
            if before is None
            else RecordGuarantee.stored(promise_in(before)).checked(algo.sys)
        )
        algo = with_noise(algo, kept.noise_on_sum(algo.sys))
        oracles, spent = PrivateOracles(kept), lambda rounds: kept.after(rounds, algo.sys)
        members: Everybody = Turns(algo, settings.seed)
    elif privacy is not None:
        guarantee = (
            privacy.in_a(algo.sys)
            if before is None
            else Guarantee.stored(promise_in(before)).checked(algo.sys)
        )
        algo = with_noise(algo, guarantee.release.sigma)
        private = in_simulation(guarantee, algo, settings.seed, settings.clip or None)
        members = (Coins if guarantee.release.q < 1 else Turns)(algo, settings.seed)
    else:
        odds = settings.sampling, sizes.tolist()
        members = Everybody(algo, settings.seed, *odds, judges=not settings.secure)
    objective.check(federation.train)
    refuse_single_samples(objective, sizes.tolist(), settings.batch_size, federation.names)
    if not settings.standardise and privacy is None:
        note_scale(objective, federation)

    shared = None
    if earlier is not None:
        first = registry.configure(earlier, earlier.system_for(sizes), objective.shapes, make)
        registry.check_rounds(first, algo)
        shared = identify(first, objective, federation, settings)
        if functions.evaluate is None and federation.held_out is None:
            note_lost_measures(Path(settings.out))
    attack = attack_of(settings.attack, len(federation), settings.seed)
    clients = DataClients(
        objective,
        attack.samples(federation) if attack else federation.train,
        federation.parts,
        settings.batch_size,
        settings.seed,
        settings.local_epochs,
        attack,
        settings.accumulate,
        settings.clip_gradients,
        federation.names,
        oracles,
    )
    fleet = choice.choose(settings.fleet, clients, algo.sys)
    evaluator = Evaluator(
        objective,
        federation,
        settings.seed,
        settings.grad_norm,
        functions.evaluate,
        private=bool(privacy),
    )
    said = replace(
        describe(algo, objective, federation),
        settings=settings.asdict(),
        identity=identify(algo, objective, federation, settings),
        fleet=fleet,
        **facts,
    )
    if guarantee is not None:
        said = replace(said, privacy=guarantee.facts(), label_counts=[])
    path, server = Path(settings.out) if settings.out else None, algo.server(objective.theta0)
    record = open_record(path, said, algo.sys.T, shared, server)
    where = fleet, settings.workers, settings.scheduling, settings.secure
    environment = Simulation(members, clients, *where)
    return Parts(environment, objective, record, evaluator, settings, private, spent)


def promise_in(path: Path) -> Mapping[str, Any]:
    """What a run to be resumed promised."""
    with closing(Record.open(path)) as record:
        return record.facts().privacy


def with_noise(algo: Algorithm, sigma: float) -> Algorithm:
    """The method, told how much noise is on the sum of uploads, if it can make use of that."""
    if "sigma" not in algo.__dataclass_fields__:
        return algo
    return replace(algo, sigma=sigma)  # type: ignore[call-arg]


def open_record(
    path: Path | None,
    facts: Facts,
    T: int,
    earlier: Mapping[str, str] | None = None,
    server: Server = None,
) -> Record:
    """A new run file, or an existing one after checking that this run can resume it.

    `earlier` is the identity that an existing one must have: that of these facts, except for its T;
    `server` is the method's first state, whose fields it must have.
    """
    if path is None or earlier is None:
        return Record.create(path, replace(facts, state="running"))
    before = check_resumable(path, T, earlier, server)
    if before.system.get("T", T) == T:
        return Record.resume(path)
    return Record.resume(path, **before.with_rounds(T, facts.identity), state="interrupted")


def check_resumable(path: Path, T: int, earlier: Mapping[str, str], server: Server) -> Facts:
    """The facts of a run file, after checking that this run can resume it up to T rounds."""
    with closing(Record.open(path)) as reader:
        before, state, last = reader.facts(), reader.state, reader.last()
        stored = reader.vectors()
    if state == "diverged":
        raise ConfigError(f"'{path}' has diverged and cannot be resumed: {before.reason}")
    if before.identity.keys() != earlier.keys():
        raise ConfigError(
            f"'{path}' was started by an earlier tunefree and cannot be resumed; it can still be "
            "read: start a new run"
        )
    if lacking := [name for name in arrays(server) if stored and name not in stored]:
        raise ConfigError(
            f"'{path}' was started with an earlier rule of {before.title}, whose server had no "
            f"{' or '.join(lacking)}, and cannot be resumed; it can still be read: start a new run"
        )
    if found := changes(before.identity, earlier):
        seed = " (torch.manual_seed before making it gives the same weights)"
        raise ConfigError(
            f"'{path}' cannot be resumed: its {'; its '.join(found)}; give what it was started "
            f"with{seed * any(MODEL in each for each in found)}"
        )
    planned, done = before.system.get("T", T), 0 if last is None else last[0] + 1
    if planned != T and done >= T:
        raise ConfigError(
            f"is too small: '{path}' has finished {done} of its {planned} rounds already",
            f"give more than {done}",
            setting="rounds",
            value=T,
        )
    return before


def note_lost_measures(path: Path) -> None:
    """Warn that measures of a user's function or held-out data, which no file has, end here."""
    with closing(Record.open(path)) as record:
        own = own_measures(record.history())
    if own:
        warnings.warn(
            f"'{path}' has the measures {', '.join(own)} of a function that is not stored in it; "
            "they end here, unless you give it again: evaluate=..., or client_test=...",
            stacklevel=2,
        )


def new_path(settings: Settings) -> Path:
    """The first free name in runs/."""
    method, data = (
        re.sub(r"[^\w.=+-]+", "_", Path(name).name)  # a user's own may be anywhere
        for name in (settings.algorithm, settings.data)
    )
    stem = f"{method}-{data}-seed{settings.seed}"
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03}.sqlite").exists():
        number += 1
    return path
