"""Settings from TOML, flags and --set; every mistake gets one error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.settings import Settings, load, parse_assignment


def test_defaults_then_file_then_settings(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text('[system]\nN = 20\nT = 7\n[algorithm]\nname = "fedavg"\neta = 0.3\n')
    config = load(file, {"rounds": 9, "partition": "iid"})
    assert config.system == System(N=20, S=10, K=10, T=9)
    assert config.option == {"eta": 0.3}
    assert config.partition == "iid"
    assert load(None, {}) == Settings()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"per_round": 60}, "per_round = 60 exceeds clients = 50; lower the clients per round"),
        ({"local_steps": 0}, "local_steps = 0 is too small; it must be at least 1"),
        ({"rounds": 0}, "rounds = 0 is too small; it must be at least 1"),
        ({"batch_size": 0}, "batch_size = 0 is too small; it must be at least 1"),
        ({"eval_every": 0}, "eval_every = 0 is too small; it must be at least 1"),
        ({"seed": -1}, "seed = -1 is too small; it must be at least 0"),
        ({"rounds": 1.5}, "rounds = 1.5 must be a whole number"),
        ({"rounds": True}, "rounds = True must be a whole number"),
        ({"grad_norm": 1}, "grad_norm = 1 must be true or false"),
        ({"data": 3}, "data = 3 must be text"),
        ({"opening": "gradient"}, "did you mean 'gradients'?"),
        ({"system.M": 3}, "system key = 'M' is not known"),
        ({"sytem.N": 3}, "did you mean 'system.N'?"),
        ({"seed": 3}, "--set key = 'seed' is not known; did you mean 'run.seed'?"),
    ],
)
def test_bad_settings(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, settings)
    assert sentence in str(error.value)


def test_bad_files(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file, {})
    file.write_text("[system\nN=3")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(file, {})
    file.write_text("[sistem]\nN=3")
    with pytest.raises(ConfigError, match="did you mean 'system'?"):
        load(file, {})
    file.write_text("system = 3")
    with pytest.raises(ConfigError, match="must be a table"):
        load(file, {})


def test_assignments() -> None:
    assert parse_assignment("a.b=true") == ("a.b", True)
    assert parse_assignment("a.b=dirichlet:0.1") == ("a.b", "dirichlet:0.1")
    assert parse_assignment('a.b="3"') == ("a.b", "3")
    for wrong in ("a.b", "=3"):
        with pytest.raises(ConfigError, match="must look like key=value"):
            parse_assignment(wrong)
