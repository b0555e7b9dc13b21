"""What an operator's machines read: metrics, exit codes, and logs as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest

pytest.importorskip("flwr")

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.flower import metrics
from tunefree.flower.federation import Federation
from tunefree.flower.log import Log
from tunefree.flower.status import Live

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"


def scraped(read: Any) -> dict[str, float]:
    pytest.importorskip("prometheus_client")
    server, thread = metrics.publish(read, "0")
    try:
        with urlopen(f"http://127.0.0.1:{server.server_address[1]}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def names(found: dict[str, float]) -> set[str]:
    return {re.sub(r"\{.*", "", name).removeprefix("tunefree_") for name in found}


def test_a_servers_numbers_are_those_of_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4))
    run_config = nodes.run_config
    out = Path(run_config["out"])
    federation = Federation(cast("Any", nodes), run_config, build_model, load_test(None))
    with Live(out) as live:
        live.watch(federation)
        rows = iter(federation.run())
        for _ in range(3):  # the opening and two rounds
            next(rows)
        live.write()
        now = scraped(lambda: metrics.of_server(tmp_path))
        assert names(now) == metrics.SERVER.keys()
        assert now["tunefree_ok"] == 1
        assert now["tunefree_round"] == 2
        assert now["tunefree_rounds"] == 4
        assert now['tunefree_clients{state="connected"}'] == 3
        assert now['tunefree_sent_bits_total{direction="up"}'] > 0
        assert main(["flower", "status", str(tmp_path)]) == 0
        monkeypatch.setattr("tunefree.flower.status.FULL", 2**62)
        assert main(["flower", "status", str(tmp_path)]) == 1
        assert f"the disk of '{out.parent}' is full (" in capsys.readouterr().out
        assert scraped(lambda: metrics.of_server(tmp_path))["tunefree_ok"] == 0
        for _ in rows:
            pass


def test_a_run_without_clients_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.sqlite"
    with Live(out) as live:
        live.write("running")
        assert main(["flower", "status", str(tmp_path)]) == 1
        assert "no client is connected" in capsys.readouterr().out


def test_a_folder_without_a_run_is_not_ok(tmp_path: Path) -> None:
    assert scraped(lambda: metrics.of_server(tmp_path)) == {"tunefree_ok": 0}
    for where in ("x", "70000", "1.2.3.4.5:80"):
        with pytest.raises(ConfigError, match="is not a free"):
            metrics.publish(dict, where)


def test_the_dashboard_asks_for_numbers_that_exist() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"tunefree_(\w+)", target["expr"])
    }
    assert asked == metrics.SERVER.keys() | metrics.NODE.keys()
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_a_log_can_be_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNEFREE_LOG", "json")
    Log("partition 1")('it says "no"')
    line = json.loads(capsys.readouterr().err)
    assert (line["of"], line["says"]) == ("partition 1", 'it says "no"')
