"""The processes of a federation on this machine, and what a killed `up` leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from filelock import FileLock

from tunefree.errors import ConfigError
from tunefree.node.local.federation import Local
from tunefree.node.local.processes import Processes, running

SLEEP = ["sleep", "60"]


def alive(pid: int) -> bool:
    return pid in dict(running())


def test_what_was_started_is_ended_with_what_it_started(tmp_path: Path) -> None:
    ours = Processes(tmp_path)
    shell = ours.start("shell", ["sh", "-c", "sleep 61 & echo $!; wait"], 1)
    log = tmp_path / "shell.log"
    while not (written := log.read_text().split()):
        time.sleep(0.01)
    child = int(written[-1])
    assert alive(shell.pid)
    assert alive(child)
    ours.end()
    assert not alive(shell.pid)
    assert not alive(child)
    assert not (tmp_path / "processes.json").exists()


def test_what_a_killed_process_left_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that was started, and one that Flower would have started in its own session."""
    helper = [sys.executable, "-c", "import time; time.sleep(60)"]
    helper += ["--runtime-api-address", "127.0.0.1:41"]
    started = (
        "import os, sys; from pathlib import Path; "
        "from tunefree.node.local.processes import Processes; "
        f"print(Processes(Path(sys.argv[1])).start('a', {SLEEP}, 41).pid, flush=True); "
        "os.kill(os.getpid(), 9)"
    )
    away = subprocess.Popen(helper, start_new_session=True)
    killed = subprocess.run(
        [sys.executable, "-c", started, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    left = int(killed.stdout)
    assert killed.returncode == -signal.SIGKILL
    assert alive(left)
    Processes(tmp_path).end()
    told = f"ended what a killed federation had left in {tmp_path}: 1 process(es)"
    assert told in capsys.readouterr().err
    assert not alive(left)
    assert away.wait(5) == -signal.SIGTERM


def test_a_process_that_only_has_the_same_number_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "62"], start_new_session=True)
    (tmp_path / "processes.json").write_text(f'[{{"{other.pid}": "flower-superlink"}}, []]')
    Processes(tmp_path).end()
    assert other.poll() is None
    os.kill(other.pid, signal.SIGKILL)
    other.wait()


def test_a_process_that_is_not_listed_is_left_alone_whatever_its_command(tmp_path: Path) -> None:
    """Its command has lines, as those of many services have."""
    other = subprocess.Popen(
        [sys.executable, "-c", "import time\ntime.sleep(60)\n"], start_new_session=True
    )
    (tmp_path / "processes.json").write_text('[{"999999999": "flower-superlink"}, []]')
    Processes(tmp_path).end()
    assert other.poll() is None
    os.kill(other.pid, signal.SIGKILL)
    other.wait()


def test_a_folder_is_of_one_federation_at_a_time(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / "federation.lock"),
        pytest.raises(ConfigError, match="belongs to a federation that is running"),
    ):
        Local(tmp_path, nodes=1)
