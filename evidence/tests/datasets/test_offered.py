"""What this distribution offers by name is what the entry points say, and describes itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from tunefree import models
from tunefree.data import Source, load
from tunefree.errors import ConfigError
from tunefree.importing import EVIDENCE, offers
from tunefree_evidence.datasets import cache, official, text

OFFERED = {
    setting: {o.name: o for o in offers(setting) if o.package == "tunefree-evidence"}
    for setting in EVIDENCE
}


@pytest.mark.parametrize("setting", EVIDENCE)
def test_the_product_knows_what_to_install_for_each_name(setting: str) -> None:
    assert OFFERED[setting].keys() == set(EVIDENCE[setting].split())


def test_every_data_set_describes_itself() -> None:
    for name, offer in OFFERED["data"].items():
        source = offer.load()
        assert isinstance(source, Source)
        assert source.name == name
        assert source.model in OFFERED["model"]
        assert source.train >= source.test > 0
        for line in (source.about, source.citation, source.licence):
            assert line
            assert "\n" not in line
            assert len(line) <= 80


def test_what_needs_files_is_not_here_without_them() -> None:
    here = {name: source.here for name, o in OFFERED["data"].items() for source in [o.load()]}
    assert here.pop("synthetic-quadratic") is None
    assert not any(each is None or each(None) for each in here.values())


def test_options() -> None:
    with pytest.raises(ConfigError, match="option of imdb = 'lenght' is not known; did you mean"):
        load("imdb", lenght=100)
    with pytest.raises(ConfigError, match="imdb length = 0 must be a whole number from 1"):
        load("imdb", length=0)
    with pytest.raises(ConfigError, match="mnist takes no options"):
        load("mnist", length=100)
    with pytest.raises(ConfigError, match="data_dir = .* is not a folder"):
        load("mnist", "no-such-folder")


def test_every_network_is_found_by_name() -> None:
    for name in OFFERED["model"].keys() - {"quadratic"}:
        shape = (6,) if name.endswith("_imdb") else (1, 28, 28)
        assert isinstance(models.build(name, shape, 10), torch.nn.Module)


def test_imdb_from_saved_arrays() -> None:
    texts = [["a", "b", "c"], ["b"]]
    arrays = {"words": np.array(["<pad>", "<unknown>", "a", "b"])}
    for split in ("train", "test"):
        tokens, starts = text.encode(texts, arrays["words"].tolist())
        arrays |= {f"x_{split}": tokens, f"starts_{split}": starts}
        arrays[f"y_{split}"] = np.array([0, 1], np.uint8)
    cache.save_arrays(cache.arrays_folder(official.IMDB), arrays)
    data = load("imdb", length=2)
    assert data.train.x.tolist() == [[2, 3], [3, 0]]
    assert data.train.x.dtype == torch.int16
    x, y = data.test.batch(slice(0, 2))
    assert (x.dtype, y.tolist()) == (torch.int64, [0, 1])
    assert load("imdb", length=4).train.x.tolist() == [[2, 3, 1, 0], [3, 0, 0, 0]]


def test_importing_stays_light() -> None:
    program = (
        "import sys, tunefree_evidence.datasets.offered\n"
        "heavy = {'sklearn', 'PIL', 'pooch', 'matplotlib', 'requests'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
