"""The live page: for this machine only, and up to date."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import planned
from tunefree.cli import main
from tunefree.cli.watch import health
from tunefree.record import Facts, Record
from tunefree.report.page import Watch, server


class Asked:
    """A server in a thread, and a way to ask it."""

    def __init__(self, *paths: Path) -> None:
        self.server = server(Watch(paths, health=health), 0)
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def __call__(
        self, path: str = "/content.json", method: str = "GET", host: str = "127.0.0.1:1"
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def content(self) -> dict[str, Any]:
        status, text = self()
        assert status == 200, text
        content = json.loads(text)
        assert isinstance(content, dict)
        return content

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def asked(runs: Path) -> Iterator[Asked]:
    one = Asked(runs / "padamfed-1.sqlite")
    yield one
    one.close()


def test_the_page_and_its_content(asked: Asked) -> None:
    status, text = asked("/")
    assert status == 200
    assert 'data-live="yes"' in text
    assert "connect-src &#x27;self&#x27;" in text
    assert asked.content()["runs"][0]["rounds"] == 8


def test_only_this_machine_only_get_only_two_addresses(asked: Asked) -> None:
    assert asked.server.server_address[0] == "127.0.0.1"
    assert asked(host="localhost:5")[0] == asked(host="localhost")[0] == 200
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert asked(host=host)[0] == 403
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert asked(method=method)[0] == 501
    for path in ("/../pyproject.toml", "/runs", "/content.json/.."):
        assert asked(path)[0] == 404


def test_a_run_being_written_is_followed(tmp_path: Path) -> None:
    writing = planned(tmp_path / "a.sqlite")
    rows = iter(writing)
    next(rows)
    asked = Asked(tmp_path)
    try:
        seen = []
        for _ in rows:
            writing.record.settle()  # a step is written while the next one is trained
            run = asked.content()["runs"][0]
            seen.append((run["state"], run["rounds"]))
        assert seen == [("running", t) for t in range(1, 9)]
        assert asked.content()["runs"][0]["state"] == "done"
        (tmp_path / "half.sqlite").write_text("not yet a run file, as while it is being made" * 99)
        now = asked.content()
        assert len(now["runs"]) == 1
        assert now["lead"].endswith("1 file cannot be read as a run file: half.sqlite.")
        (tmp_path / "half.sqlite").unlink()
        assert "half" not in asked.content()["lead"]
    finally:
        asked.close()


def test_a_folder_without_runs_is_waited_for(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    try:
        assert asked.content()["lead"] == "No runs yet."
        assert asked("/")[0] == 200
        next(iter(planned(tmp_path / "a.sqlite")))
        assert len(asked.content()["runs"]) == 1
    finally:
        asked.close()


def test_a_named_file_that_breaks_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    Record.create(file, Facts(state="done")).close()
    asked = Asked(file)
    try:
        assert asked()[0] == 200
        file.write_text("not a run file any more" * 99)
        assert asked()[0] == 503
    finally:
        asked.close()


def test_unchanged_files_are_not_read_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch([runs / "padamfed-1.sqlite"])
    first = watched()
    monkeypatch.setattr("tunefree.report.page.summarise", None)
    assert watched() == first


def test_a_finished_run_that_changes_is_read_again(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "a.sqlite", Facts(state="done"))
    watched = Watch([tmp_path])
    assert watched()["runs"][0]["state"] == "done"
    record.note(state="diverged")
    assert watched()["runs"][0]["state"] == "diverged"
    record.close()


def test_a_writer_that_died_is_noticed_though_its_file_stays(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "a.sqlite", Facts(state="running"))
    watched = Watch([tmp_path])
    assert watched()["runs"][0]["state"] == "running"
    record.release()  # as the system does when a process is killed
    assert watched()["runs"][0]["state"] == "interrupted"
    record.close()


def test_the_status_of_a_federation_is_on_its_page(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "a.sqlite"
    run.write_bytes((runs / "padamfed-1.sqlite").read_bytes())
    watched = Watch([run], health=health)
    assert watched()["health"] == []  # a simulation
    one = {"client": 3, "name": "<b>partition 3</b>", "node": 12, "state": "connected"}
    page = {"state": "ended", "why": "", "at": 0.0, "clients": [one], "events": []}
    run.with_name("a.sqlite.live.json").write_text(json.dumps(page))
    first, *_, last = watched()["health"]
    assert first.startswith(f"{run}: ended, round ")
    assert last.startswith("client 3, <b>partition 3</b>, node 12: was connected, 5 uploads, ")


@pytest.mark.parametrize("kind", ["runs", "empty"])
def test_the_command_ends_by_ctrl_c(kind: str, runs: Path, tmp_path: Path) -> None:
    folder = runs if kind == "runs" else tmp_path
    command = [sys.executable, "-m", "tunefree.cli", "watch", str(folder), "--format", "json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that put the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as at:
        assert at.stdout is not None
        url = json.loads(at.stdout.readline())["url"]
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=30)
        connection.request("GET", "/")
        assert connection.getresponse().read().startswith(b"<!DOCTYPE html>")
        connection.close()
        at.send_signal(signal.SIGINT)
        out, err = at.communicate(timeout=30)
    assert (at.returncode, out, err) == (0, "", "stopped watching; the runs continue\n")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["none.sqlite"], "there is no run file at"),
        (["{run}", "--port", "99999"], "--port = 99999"),
    ],
)
def test_what_cannot_be_watched(
    argv: list[str], sentence: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs / "padamfed-1.sqlite")
    assert main(["watch", *(word.format(run=run) for word in argv)]) == 2
    assert sentence in capsys.readouterr().err
