"""A method depends on the number of rounds exactly if its formulas say so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tests.testing.test_check import Mine, Server
from tests.variants import METHODS, SYS
from tunefree.core import About, Step, System, bind, horizon_steps
from tunefree.errors import ConfigError
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.registry import build, check_rounds
from tunefree.testing.check import check_algorithm
from tunefree.testing.observe import differ, run_problem

TWICE = SYS._replace(T=2 * SYS.T)


@pytest.mark.parametrize("name", METHODS)
def test_first_rounds_differ_with_the_horizon_only_where_a_formula_says_so(name: str) -> None:
    everyone = {"S": SYS.N} if name == "local_sgd_c" else {}
    once, twice = (build(name, sys._replace(**everyone)) for sys in (SYS, TWICE))
    assert differ(run_problem(once), run_problem(twice)) == bool(horizon_steps(once))


def test_those_without_a_horizon() -> None:
    with_one = {name for name in METHODS if horizon_steps(build(name, SYS))}
    assert {"padamfed", "padamfed_vr", "parfrefl", "comparfrefl", "adamasfl", "masfl"} < with_one
    assert not with_one & {"fedavg", "scaffold", "fedadam", "fedsps", "fedbuff"}


def test_a_step_depends_on_the_arguments_of_its_function() -> None:
    with_T = About("Mine", steps={"gamma": Step("1 / (K T)", lambda K, T: 1 / (K * T))})
    without = About("Mine", steps={"gamma": Step("1 / sqrt(t + 1)", lambda t: (t + 1) ** -0.5)})
    assert horizon_steps(told(SYS, with_T)) == {"gamma": "1 / (K T)"}
    assert horizon_steps(told(SYS, without)) == {}
    step = without.steps["gamma"]
    assert (step.depends_on, step.at(SYS), step.at(SYS, 3)) == (("t",), 1.0, 0.5)


def test_a_step_given_by_hand_depends_on_nothing() -> None:
    algo = bind(PAdaMFed(), SYS)
    assert list(horizon_steps(replace(algo, eta=0.5))) == ["gamma", "beta"]
    assert not horizon_steps(replace(algo, eta=0.5, gamma=0.5, beta=0.5))
    given = {"eta": 0.5, "gamma": 0.5, "beta": 0.5}
    check_rounds(*(build("padamfed", sys, given, explicit_steps=True) for sys in (SYS, TWICE)))


@dataclass(frozen=True)
class Told(Mine):
    """A user's own method with an `about`."""

    about: ClassVar[About]


def told(sys: System, said: About, **parts: Any) -> Mine:
    return bind(type("Told", (Told,), {"about": said})(**parts), sys)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Decaying(Mine):
    """Depends on T, and does not declare it."""

    about: ClassVar[About] = About("Decaying", "", "")

    def aggregate(self, s: Server, replies: Any) -> Any:
        m = super().aggregate(s, replies).m
        return Server(s.theta - m / self.sys.T, m)


def test_an_undeclared_dependence_is_found_by_the_check() -> None:
    (complaint,) = check_algorithm(Decaying)
    assert "it depends on T, but no step in its `about.steps` does" in complaint
    assert check_algorithm(told(SYS, About("Mine", "", ""))) == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda sys: bind(Mine(), sys),
            "Mine has no `about`, so it is not known whether its steps depend on T",
        ),
        (lambda sys: bind(FedAvg(eta=1 / sys.T), sys), "FedAvg has another eta for another T"),
        (
            lambda sys: bind(PAdaMFed(), sys),
            r"PAdaMFed's steps depend on T \(eta = 1 / \(K sqrt\(T\)\), gamma = ",
        ),
    ],
)
def test_other_rounds_are_refused(make: Any, sentence: str) -> None:
    check_rounds(make(SYS), make(SYS))
    end = ": a run of 8 rounds cannot become one of 16; start a new run, or use a method without a"
    with pytest.raises(ConfigError, match=f"^{sentence}.*{end}"):
        check_rounds(make(SYS), make(TWICE))


def test_functions_among_its_parts_do_not_differ() -> None:
    """They have another address whenever they are made."""
    said = About("Mine", "", "")
    once, twice = (told(sys, said, start=lambda: ()) for sys in (SYS, TWICE))
    check_rounds(once, twice)
