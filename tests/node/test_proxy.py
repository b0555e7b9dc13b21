"""The proxy in deploy/: what strangers, nodes and operators reach of a SuperLink behind it."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("flwr")

import httpx

from tunefree.cli import main
from tunefree.flower.metrics import NODE
from tunefree.flower.new_app import new_app
from tunefree.node.connection import RefusedError
from tunefree.node.control import Control
from tunefree.node.link import Link
from tunefree.node.local import processes
from tunefree.node.local.federation import Local
from tunefree.record import Record

CONF = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MAIN = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    {temporary}
    include {folder}/tunefree.conf;
}}
"""
PASSWORD = "open-sesame"

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Proxied(Local):
    """A federation whose nodes are told the proxy's address."""

    behind = ""

    @property
    def address(self) -> str:
        return self.behind or super().address

    def operator(self) -> Control:
        return Control(f"anna:{PASSWORD}@{self.behind}", False, self.ca)


def nginx(local: Proxied, folder: Path) -> subprocess.Popen[bytes]:
    """Start the proxy of deploy/ with this federation's ports, names and files."""
    folder.mkdir()
    port = processes.free_port()
    text = CONF.read_text()
    for old, new in (
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8000", f"127.0.0.1:{local.port}"),
        ("server.example.org", "localhost"),
        ("/etc/tunefree/operators", f"{folder}/operators"),
        ("/etc/tunefree", f"{local.ca.parent}"),
        ("/var/log/nginx", f"{folder}"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "tunefree.conf").write_text(text)
    temporary = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy")]
    temporary += [f"{kind}_temp_path {folder}/{kind};" for kind in ("fastcgi", "uwsgi", "scgi")]
    user = "user root;" if os.geteuid() == 0 else ""
    words = {"folder": folder, "user": user, "temporary": " ".join(temporary)}
    (folder / "nginx.conf").write_text(MAIN.format(**words))
    done = subprocess.run(
        ["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True
    )
    (folder / "operators").write_text(f"anna:{done.stdout}")
    process = subprocess.Popen([str(NGINX), "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    end = time.monotonic() + 30
    while not processes.listening(port):
        assert process.poll() is None, (folder / "error.log").read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    local.behind = f"localhost:{port}"
    return process


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    with closing(Proxied(tmp_path / "federation", 2, tls=True, auth=True)) as local:
        local.start_link()
        proxy = nginx(local, tmp_path / "nginx")
        try:
            yield local
        finally:
            proxy.terminate()
            proxy.wait(20)


def audit(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "nginx" / "tunefree-audit.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_stranger_with_the_public_certificate_reaches_nothing(
    proxied: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    public = proxied.key(0).with_suffix(".pub")
    with closing(Control(f"127.0.0.1:{proxied.port}", False, proxied.ca)) as unprotected:
        assert unprotected.nodes() == []  # without the proxy everybody is an operator
    for address in (proxied.behind, f"anna:wrong@{proxied.behind}"):
        with closing(Control(address, False, proxied.ca)) as stranger:
            for forbidden in (stranger.nodes, lambda: stranger.register(public)):
                with pytest.raises(RefusedError, match="NAME:PASSWORD@"):
                    forbidden()
    link = Link(proxied.behind, False, proxied.ca, proxied.key(1))
    with closing(link), pytest.raises(RefusedError, match="Failed to activate"):
        link.activate()  # the path of nodes is open, and this key is not registered
    trusted = ssl.create_default_context(cafile=proxied.ca)
    with httpx.Client(base_url=f"https://{proxied.behind}", verify=trusted) as client:
        for path in ("/", "/docs", "/v1/runtime/get-nodes", "/v1/fleet/../control/list-nodes"):
            assert client.post(path).status_code in (401, 403), path

    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.ours]\naddress = "anna:{PASSWORD}@{proxied.behind}"\n'
        f'root-certificates = "{proxied.ca}"\n'
    )
    monkeypatch.setenv("FLWR_HOME", str(home))
    assert main(["flower", "register", "--superlink", "ours", str(public)]) == 0
    listed = subprocess.run(
        processes.command_line(["flwr", "supernode", "list", "ours", "--format", "json"]),
        env=processes.environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(listed.stdout)["nodes"]) == 1
    who = [
        (line["who"], line["did"].rpartition("/")[2], line["status"]) for line in audit(tmp_path)
    ]
    assert ("", "register-node", 401) in who
    assert ("anna", "register-node", 401) in who  # with a wrong password
    assert who[-1] == ("anna", "register-node", 200)


@pytest.mark.slow
def test_a_run_through_the_proxy(proxied: Proxied, tmp_path: Path) -> None:
    new_app(tmp_path / "digits")
    with closing(proxied.operator()) as control:
        for place in range(2):
            control.register(proxied.key(place).with_suffix(".pub"))
            port = processes.free_port()
            proxied.start_node(place, "--metrics", str(port))
        number = control.start(tmp_path / "digits", {"clients": 2, "rounds": 3})
        assert list(control.log(number))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
        assert "tunefree_node_connected 1.0" in page
        assert all(f"\ntunefree_{name} " in page for name in NODE)
        assert "\ntunefree_node_jobs_total 0.0" not in page
    with closing(Record.open(proxied.folder / "superlink" / "federation.sqlite")) as record:
        assert record.state == "done"
        assert record.absences() == []
    assert audit(tmp_path)[-1]["did"] == "/v1/control/start-run"
