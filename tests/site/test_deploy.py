"""The files in deploy/: hardened, valid for the tools that read them, with commands that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefree.cli import parser

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
LOCK = DEPLOY / "requirements.txt"
HARDENED = {
    *("UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes"),
    *("PrivateTmp=yes", "CapabilityBoundingSet=", "SystemCallFilter=@system-service"),
    *("StateDirectoryMode=0700", "User=tunefree", "Restart=always"),
    *("MemoryMax=8G", "TasksMax=512", "LimitNOFILE=4096"),
}
EXPOSURE = 20  # tenths, at most, by systemd's own measure


def check_command(words: list[str]) -> None:
    """Fails if it is a command of ours with arguments that it does not have."""
    if Path(words[0]).name == "tunefree":
        assert parser().parse_args(words[1:]).command == "flower"
    elif "flower-superlink" in words[-1]:
        check_command(shlex.split(words[-1])[4:])
    elif words[0].endswith("flower-superlink"):
        assert words[words.index("--host") + 1] == "127.0.0.1", "the Control API would be open"
        assert "--enable-supernode-auth" in words


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_hardened(unit: Path) -> None:
    text = unit.read_text()
    assert set(text.splitlines()) >= HARDENED
    command = re.search(r"ExecStart=((?:.*\\\n)*.*)", text)
    assert command
    check_command(shlex.split(command[1].replace("\\\n", " ")))
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
    complaints = [each for each in said.splitlines() if unit.name in each]
    assert all("is not executable: No such file" in each for each in complaints)
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", str(unit)]
    subprocess.run(words, capture_output=True, check=True)


def test_every_service_of_compose_is_hardened() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert len(services) == 6
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert service["pids_limit"]
        assert service["logging"]["options"]["max-size"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        check_command(shlex.split(service.get("command", "nginx")))


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for each in manifests():
        pod = each["spec"].get("template", {}).get("spec", {"containers": ()})
        yield from ((pod, container) for container in pod["containers"])


def test_the_manifests_fit_their_schema() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in manifests():
        validate(each, "1.30", strict=True)
    with pytest.raises(Exception, match="replicas"):
        validate({**manifests()[1], "spec": {"replicas": "one"}}, "1.30", strict=True)


def test_every_container_is_hardened() -> None:
    assert len(list(containers())) == 4
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"]
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"]
        assert not own["allowPrivilegeEscalation"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        known = {volume["name"] for volume in pod["volumes"]}
        known |= {"server", "audit", "memory"}  # claimed
        assert {mount["name"] for mount in container["volumeMounts"]} <= known
        if words := [*container.get("command", ()), *container.get("args", ())]:
            check_command(words)


def test_the_image_is_hardened() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    order = ["ARG BASE=", "FROM ${BASE}", "--require-hashes", "USER 1000", "HEALTHCHECK"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert LOCK.relative_to(ROOT).as_posix() in text


def test_every_package_of_a_deployment_has_a_hash() -> None:
    text = LOCK.read_text()
    assert "://" not in text
    entries = re.findall(
        r"^([\w.-]+)==([\w.+]+).*\\\n(?:    --hash=sha256:\w{64}.*\n)+", text, re.M
    )
    listed = [line for line in text.splitlines() if re.match(r"\w", line)]
    assert len(entries) == len(listed)
    pinned = dict(entries)
    assert {"flwr", "torch", "cryptography", "prometheus-client"} <= pinned.keys()
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = dict(line.split("==") for line in lines if "==" in line)
    assert all(wanted[name] == pinned[name] for name in wanted.keys() & pinned.keys())
