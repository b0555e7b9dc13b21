"""A run as text: its method, its step sizes and where they come from, and its progress."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree.core import about, unwrapped
from tunefree.geometry import units
from tunefree.methods.polarfl_stateless import PolarFLStateless
from tunefree.models.answers import loss_of_model
from tunefree.models.objective import EVALUATION_BATCH
from tunefree.record.facts import AS_PUBLISHED, Facts
from tunefree.record.summary import size
from tunefree.run.engine import Training
from tunefree.run.progress import headline, sentence
from tunefree.testing.cost import costs


def introduction(run: Training) -> str:
    """What the run will do, with every step size and its formula."""
    facts, d = run.record.facts(), run.objective.d
    prices = costs(run.algo, d)
    (N, S, K, T), steps = run.algo.sys, about(run.algo).steps
    down = size(32 * d * S * prices[0].down)
    ups = (size(32 * d * S * up) for up in sorted({price.up for price in prices}))
    lines = [
        f"{facts.title}{f' ({facts.paper})' if facts.paper else ''}",
        f"  N = {N} clients, S = {S} a round, {local_work(facts, K)}, T = {T} rounds",
    ]
    for name, value in facts.steps.items():
        formula = "" if name in facts.option else facts.formulas.get(name, "")
        equals = "" if formula in ("", AS_PUBLISHED) else "= "
        first = ", here for round t = 0" if formula and "t" in steps[name].depends_on else ""
        chosen = "given" if name in facts.option else "default"
        source = f"{equals}{formula or chosen}{first}"
        lines.append(f"  {name:<5} = {value:<9.4g} {source}")
    if shapes := unwrapped(run.algo).tensors:
        r = units(run.objective.theta0, shapes)
        lines.append(
            f"  steps are multiples of each tensor's initial norm: {len(r)} tensors, norms "
            f"{min(r):.3g} to {max(r):.3g}"
        )
    if facts.compressor:
        lines.append(f"  compressor {facts.compressor}")
    if facts.privacy:
        lines.append(f"  {privacy_words(facts)}")
        if isinstance(method := unwrapped(run.algo), PolarFLStateless):
            M = method.worth(run.objective.theta0)
            lines.append(
                f"  under this noise a round is worth M = {M:.3g} gradients: S K above is M"
            )
    data = f"data {facts.data}, {facts.partition}" if facts.data else "data of your own"
    model = facts.model_words if facts.model else "of your own"
    lines += [
        f"  {data}, batches of {facts.batch_size}"
        + f" x {facts.accumulate}, accumulated" * (facts.accumulate > 1),
        f"  model {model}, d = {d:,} parameters; a round sends {down} down and "
        f"{' or '.join(ups)} up",
    ]
    if (own := run.objective.own) is not None:
        lines.append(
            f"  stays with each client: {own.first.numel():,} numbers ({shortened(own.names)}); "
            "the test set is scored with their mean, clients' data with each client's own"
        )
    if facts.scaling:
        names = ", ".join(facts.scaling)
        lines.append(f"  standardised by the clients' sums: {names}; the model has original units")
    if run.objective.loss is loss_of_model:
        lines.append(f"  losses are the model's own, means over batches of {EVALUATION_BATCH}")
    if hasattr(run.objective.module, "training_step"):
        lines.append("  not used: the model's training_step and optimiser; forward and loss are")
    if facts.weighted:
        lines.append("  samples have weights, with mean 1 for every client")
    if any(name != str(k) for k, name in enumerate(facts.classes_named)):
        lines.append(
            f"  classes 0 to {len(facts.classes_named) - 1}: {shortened(facts.classes_named)}"
        )
    if facts.unused:
        lines.append(f"  not used: {', '.join(facts.unused)} (neither input nor target)")
    if facts.attack:
        lines.append(f"  {facts.attack_words}")
    if run.record.path:
        lines.append(f"  run file {run.record.path}")
    return "\n".join(lines)


def shortened(names: Sequence[str], most: int = 4) -> str:
    """The first of these names, and how many there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def privacy_words(facts: Facts) -> str:
    """The promise, and what it rests on."""
    promise = (
        "privacy: epsilon {epsilon:g} at delta {delta:.2g} for every {unit}; noise {sigma:.3g}"
    )
    rests = "{sampling}; {adjacency}; {accountant}; {trust}"
    return f"{promise}; {rests}".format(**facts.privacy)


def local_work(facts: Facts, K: int) -> str:
    """What a client does in a round."""
    epochs = facts.settings.get("local_epochs", 0)
    return f"{epochs} local epochs, K = {K} steps on average" if epochs else f"K = {K} local steps"


def progress_of(run: Training) -> str:
    """The rounds done, and the last scores."""
    scored = [words for row in run.history if (words := sentence(row))]
    return f"{state_of(run)}{f': {scored[-1]}' if scored else ''}"


def one_line(run: Training) -> str:
    """The run in one line, its repr."""
    facts, (N, S, K, T) = run.record.facts(), run.algo.sys
    scored = [words for row in run.history if (words := headline(row))]
    parts = [
        f"{facts.title}{f' {facts.label!r}' if facts.label else ''}",
        f"N = {N}, S = {S}, K = {K}, T = {T}",
        state_of(run),
        *scored[-1:],
        *([str(run.record.path)] if run.record.path else ()),
    ]
    return f"<Run {'; '.join(parts)}>"


def state_of(run: Training) -> str:
    if run.step is None:
        return "not started"
    return f"{run.record.state} after round {run.step.t + 1}"
