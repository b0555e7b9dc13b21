"""Compressors by name: each spelling, each refusal, and which method takes which."""

from __future__ import annotations

from typing import Any

import pytest

from tests.variants import COMPRESSING, METHODS
from tests.wire.specs import every_spec
from tunefree.core import System, options
from tunefree.errors import ConfigError
from tunefree.methods.registry import build
from tunefree.wire import from_spec
from tunefree.wire.compressors import (
    AnyOf,
    Identity,
    PerTensor,
    Qsgd,
    Rand,
    Rotated,
    Rule,
    Sign,
    Top,
)

SYS = System(N=6, S=3, K=2, T=8)


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("identity", Identity()),
        ("top:0.05", Top(0.05)),
        ("top:1", Top(1.0)),
        ("top:5e-2", Top(0.05)),
        ("rand:0.05", Rand(0.05)),
        ("rand-unbiased:0.05", Rand(0.05, unbiased=True)),
        ("sign", Sign()),
        ("rotated:1", Rotated(1)),
        ("rotated:4", Rotated(4)),
        ("qsgd:4", Qsgd(4)),
        ("qsgd-contractive:4", Qsgd(4, unbiased=False)),
        ("qsgd:65535", Qsgd(65535)),
        ("qsgd:0000000004", Qsgd(4)),
    ],
)
def test_names(spec: str, rule: Rule) -> None:
    assert from_spec(spec) == PerTensor(rule)
    assert from_spec(spec, [3, 0, 2]) == PerTensor(rule, (3, 2))
    assert from_spec(f"{spec}@whole", [3, 2]) == PerTensor(rule, whole=True)


@every_spec
def test_a_compressor_as_text_is_its_spec(spec: str) -> None:
    assert str(from_spec(spec, [3, 2])) == spec
    if not spec.startswith("any:"):
        assert str(from_spec(f"{spec}@whole", [3, 2])) == f"{spec}@whole"


def test_any_takes_each_with_its_own_layout() -> None:
    C = from_spec("any:top:0.02|sign@whole|qsgd-contractive:4", [3, 2])
    tensors = (3, 2)
    assert (
        AnyOf(
            (
                PerTensor(Top(0.02), tensors),
                PerTensor(Sign(), whole=True),
                PerTensor(Qsgd(4, False), tensors),
            )
        )
        == C
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("topp:0.05", "compressor = 'topp' is not known; did you mean 'top'?"),
        ("Top:0.05", "did you mean 'top'?"),
        ("", "compressor = '' is not known"),
        ("TOP:0.05", "did you mean 'top'?"),
        ("top", "'top' needs the share of elements to keep, a number above"),
        ("top:0", "'top:0' needs the share of elements to keep"),
        ("top:-0.1", "above 0 and at most 1"),
        ("top:1.01", "above 0 and at most 1"),
        ("top:nan", "above 0 and at most 1"),
        ("top:5%", "above 0 and at most 1"),
        ("rand:five", "'rand:five' needs the share of elements to keep"),
        ("top:0.05@layer", "compressor layout = 'layer' is not known"),
        ("sign:4", "'sign:4' takes no number; write 'sign'"),
        ("identity:1", "write 'identity'"),
        ("qsgd", "'qsgd' needs a whole number of levels from 1 to 65535"),
        ("qsgd:0", "from 1 to 65535"),
        ("qsgd:2.5", "from 1 to 65535"),
        ("qsgd:65536", "from 1 to 65535"),
        ("qsgd:²", "from 1 to 65535"),
        ("qsgd:1000000004", "from 1 to 65535"),
        ("qsgd:000000004000000", "from 1 to 65535"),
        (
            "rotated",
            "'rotated' needs a whole number of bits per element from",
        ),
        ("rotated:0", "bits per element from 1 to 4; write it like 'rotated:2'"),
        ("rotated:5", "from 1 to 4"),
        ("rotated:02", "from 1 to 4"),
        ("rotated:1.5", "from 1 to 4"),
        ("rotated:²", "from 1 to 4"),
        ("rotate:2", "did you mean 'rotated'?"),
        ("any:", "'any:' contains ''; separate single compressors by bars"),
        ("any:top:0.1|", "'any:top:0.1|' contains ''"),
        ("any:any:top:0.1", "contains 'any:top:0.1'"),
        ("any:top:0.1|sing", "did you mean 'sign'?"),
        (0.05, "compressor = 0.05 is not a compressor; write it like 'top:0.05'"),
    ],
)
def test_refusals(spec: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_spec(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def compressor(name: str, options: dict[str, object], sizes: list[int] | None = None) -> Any:
    shapes = None if sizes is None else tuple((size,) for size in sizes)
    algo: Any = build(name, SYS, options, shapes=shapes)
    return algo.C


@pytest.mark.parametrize("name", COMPRESSING)
def test_a_method_has_a_compressor_of_its_own_kind(name: str) -> None:
    own = PerTensor(Rand(0.05, unbiased=True) if name == "scallion" else Top(0.05))
    whole = name.startswith("polarfl")  # which sends whole vectors unless it is told
    expected = None if whole else own
    assert expected == options(METHODS[name]())["C"]
    assert compressor(name, {}) == expected
    assert compressor(name, {}, [3, 2]) == (expected and expected.over([3, 2]))
    assert compressor(name, {"compressor": "identity"}, [3, 2]) == PerTensor(Identity(), (3, 2))


def test_these_methods_compress() -> None:
    assert sorted(COMPRESSING) == [
        "comparfrefl",
        "fed_ef_ams",
        "fed_ef_sgd",
        "local_sgd_c",
        "polarfl",
        "polarfl_stateless",
        "scafcom",
        "scallion",
    ]


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(COMPRESSING)))
def test_others_refuse_a_compressor(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'top:0.05' was given, but .* sends whole vectors"):
        build(name, SYS, {"compressor": "top:0.05"})


@pytest.mark.parametrize("name", COMPRESSING)
def test_the_wrong_kind_is_refused(name: str) -> None:
    wrong, need = ("top:0.1", "unbiased") if name == "scallion" else ("qsgd:4", "contractive")
    for spec in (wrong, f"any:identity|{wrong}"):
        with pytest.raises(ConfigError) as error:
            build(name, SYS, {"compressor": spec})
        assert f"compressor = '{spec}' is not {need}, which " in str(error.value)
        assert ("'rotated:2'" in str(error.value)) == (need == "contractive")


def test_other_options_go_with_a_compressor() -> None:
    algo: Any = build("scafcom", SYS, {"compressor": "sign", "beta": 0.5, "start": "gradients"})
    assert (algo.C, algo.beta, algo.start) == (PerTensor(Sign()), 0.5, "gradients")


@pytest.mark.parametrize("option", ["C", "compresor"])
def test_the_option_has_one_name(option: str) -> None:
    with pytest.raises(
        ConfigError, match=f"option.{option} = 'sign' is not an option of ComParFreFL"
    ):
        build("comparfrefl", SYS, {option: "sign"})


@pytest.mark.parametrize(
    ("name", "option"), [("scallion", "alpha"), ("fed_ef_ams", "beta1"), ("fed_ef_ams", "beta2")]
)
def test_weights_lie_between_0_and_1(name: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"option.{option} = 1.5 is out of range"):
        build(name, SYS, {option: 1.5})


def test_comparfrefl_takes_no_step_size() -> None:
    with pytest.raises(ConfigError, match="ComParFreFL takes no step size"):
        build("comparfrefl", SYS, {"eta": 0.1})
