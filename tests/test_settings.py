"""Settings from TOML, flags and --set; every mistake gets one error that says what to do."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from tunefree.cli.flags import typed
from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.former_names import CHANGED, KEPT
from tunefree.settings import FIELDS, TABLES, Schedule, Settings, load, parse_assignment, restored


def test_defaults_then_file_then_settings(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text('clients = 20\nrounds = 7\nalgorithm = "fedavg"\n[option]\neta = 0.3\n')
    settings = load(file, {"rounds": 9, "partition": "iid", "data_option.length": 3})
    assert settings.system == System(N=20, S=10, K=10, T=9)
    assert settings.option == {"eta": 0.3}
    assert settings.data_option == {"length": 3}
    assert settings.partition == "iid"
    assert load(None, {}) == Settings()
    assert load(None, {"option": {"eta": 1}}) == load(None, {"option.eta": 1})


def test_what_a_file_stores_is_restored() -> None:
    for settings in (
        load(None, {"local_epochs": 2, "sampling": [1, 2], "clients": 2, "option.eta": 0.5}),
        Settings(),
    ):
        assert restored(settings.asdict()) == settings
    with pytest.raises(ConfigError, match="a setting that this tunefree does not know .*'moon'"):
        restored({"moon": 1})


def test_clients_per_round_never_exceed_the_clients_unless_asked() -> None:
    assert load(None, {"clients": 4}).per_round == 4
    assert load(None, {"clients": 4, "per_round": 0}).system.S == 4


def test_local_epochs_take_the_place_of_local_steps() -> None:
    settings = load(None, {"local_epochs": 2, "batch_size": 8})
    assert settings.local_steps is None
    assert settings.system_for([8, 17]).K == 4
    assert settings.system_of(7).K == 7
    with pytest.raises(ConfigError, match="local_epochs = 2 needs the clients' numbers of samples"):
        _ = settings.system
    fixed = load(None, {"local_steps": 3})
    assert fixed.system_for([8, 17]) == fixed.system == fixed.system_of(7)


def test_a_schedule_is_the_settings_of_its_names() -> None:
    schedule = Schedule("buffered", concurrency=20, delays="mild")
    assert load(None, schedule.as_settings()).scheduling == schedule


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"per_round": 60},
            "per_round = 60 exceeds clients = 50; lower per_round or raise clients",
        ),
        ({"local_steps": 0}, "local_steps = 0 is too small; it must be at least 1"),
        ({"local_steps": None}, "local_steps = None must be a whole number; omit it"),
        ({"rounds": 0}, "rounds = 0 is too small; it must be at least 1"),
        ({"batch_size": 0}, "batch_size = 0 is too small; it must be at least 1"),
        ({"eval_every": 0}, "eval_every = 0 is too small; it must be at least 1"),
        ({"seed": -1}, "seed = -1 is too small; it must be at least 0"),
        ({"rounds": 1.5}, "rounds = 1.5 must be a whole number"),
        ({"rounds": True}, "rounds = True must be a whole number"),
        ({"grad_norm": 1}, "grad_norm = 1 must be true or false"),
        ({"data": 3}, "data = 3 must be text"),
        ({"option": 3}, "option = 3 must be a table; write [option] above it"),
        ({"opening": "gradient"}, "did you mean 'gradients'?"),
        ({"per_rounds": 3}, "'per_rounds' is not a setting; did you mean 'per_round'?"),
        ({"options.eta": 3}, "'options.eta' is not a setting"),
        ({"local_epochs": 2, "local_steps": 3}, "local_steps = 3 and local_epochs = 2 cannot be"),
        ({"system.S": 3}, "system.S is now called per_round; write per_round, in a file above"),
        ({"algorithm.eta": 3}, "algorithm.eta is now called option.eta; write option.eta"),
        ({"data.length": 3}, "data.length is now called data_option.length"),
        ({"per-round": 3}, "per-round is now called per_round; write per_round"),
    ],
)
def test_bad_settings(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, settings)
    assert sentence in str(error.value)


NEW = [
    "client_test",
    "records",
    "local",
    "batch_norm",
    "clip_gradients",
    "accumulate",
    "robust",
    "average",
    "attack",
    "standardise",
    "secure",
    "epsilon",
    "unit",
    "delta",
    "clip",
    "participations",
]  # after 0.2.0


def test_every_former_name_is_refused_with_the_one_of_today() -> None:
    former = {
        f"{section}.{name}": name for section, names in KEPT.items() for name in names.split()
    }
    assert sorted((former | CHANGED).values()) == sorted(FIELDS.keys() - {*TABLES, *NEW})
    for key, name in (former | CHANGED).items():
        with pytest.raises(ConfigError, match=f"^{key} is now called {name};"):
            load(None, {key: 1})


def test_settings_are_checked_however_they_are_made() -> None:
    with pytest.raises(ConfigError, match="rounds = 0 is too small"):
        replace(Settings(), rounds=0)
    with pytest.raises(ConfigError, match="schedule = 'bufered' is not known"):
        Schedule("bufered")  # type: ignore[arg-type]


def test_an_error_is_data_that_each_entry_point_spells() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"per_round": 60})
    error = caught.value
    assert (error.setting, error.value) == ("per_round", 60)
    assert (error.problem, error.remedy) == (
        "exceeds {clients} = 50",
        "lower {per_round} or raise {clients}",
    )
    assert error.rendered(typed) == (
        "--per-round 60 exceeds --clients = 50; lower --per-round or raise --clients"
    )
    assert str(copy.copy(error)) == str(error)


def test_braces_of_the_user_are_harmless() -> None:
    error = ConfigError("does not fit {x} {}", "see {", setting="data", value="{clients}.csv")
    assert str(error) == "data = '{clients}.csv' does not fit {x} {}; see {"
    assert error.rendered(typed).startswith("--data '{clients}.csv' does not fit {x}")


def test_what_has_no_flag_is_typed_with_set() -> None:
    def said(name: str, value: object) -> str:
        return ConfigError("is wrong", setting=name, value=value).rendered(typed)

    assert said("option.eta", 0.2) == "--set option.eta=0.2 is wrong"
    assert said("explicit_steps", True) == "--set explicit_steps=true is wrong"
    assert said("grad_norm", True) == "--grad-norm is wrong"
    assert said("data_option.target", "a b") == "--target-column 'a b' is wrong"
    assert said("sampling", (1.0, 2.0)) == "--set 'sampling=[1.0, 2.0]' is wrong"


def test_bad_files(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file, {})
    file.write_text("[option\neta=3")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(file, {})
    file.write_text("[system]\nN = 3")
    with pytest.raises(ConfigError, match="system.N is now called clients"):
        load(file, {})
    file.write_text("[optoin]\neta = 3")
    with pytest.raises(ConfigError, match=r"'optoin.eta' is not a setting"):
        load(file, {})


def test_assignments() -> None:
    assert parse_assignment("a.b=true") == ("a.b", True)
    assert parse_assignment("a.b=dirichlet:0.1") == ("a.b", "dirichlet:0.1")
    assert parse_assignment('a.b="3"') == ("a.b", "3")
    for wrong in ("a.b", "=3"):
        with pytest.raises(ConfigError, match="must look like key=value"):
            parse_assignment(wrong)
