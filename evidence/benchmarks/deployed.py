"""Seconds of a deployed federation on this machine: our nodes, Flower's own, and plain Flower.

    python evidence/benchmarks/deployed.py --nodes 1 3 10 --rounds 20 --out OUT.json

`ours` is our app on our nodes, `stock` the same app on Flower's, `plain` Flower's FedAvg with a
minimal torch client on Flower's nodes. All have the same model, data, local steps, TLS and node
keys, and a SuperLink with its state in memory unless `--database`. They run one after the other for
each number of nodes, and are stopped after `--seconds`; stock and plain run `--few` rounds, because
theirs take long.

start    until all clients have connected (plain: until the ServerApp has started)
opening  the opening and the first round, in which workers load the model and the data
round    the median of the other rounds
end      from the last round until all processes have ended
cpu      seconds of the SuperLink, per client and round
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tunefree.flower.new_app import new_app
from tunefree.node.control import LocalRun
from tunefree.node.local.federation import Local

KINDS = ("ours", "stock", "plain")
STEPS, BATCH = 5, 16
PLAIN_SERVER = """
import time

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from PACKAGE.task import build_model

app = ServerApp()


@app.main()
def main(grid, context):
    clients = context.run_config["clients"]

    def report(number, arrays):
        print(f"round {number}", flush=True)
        return MetricRecord({"loss": 0.0})

    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
    )
    arrays = ArrayRecord(build_model().state_dict())
    strategy.start(grid, arrays, context.run_config["rounds"], evaluate_fn=report)
"""
PLAIN_CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from PACKAGE.task import build_model, load_data

app = ClientApp()


@app.train()
def train(message, context):
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_data(context)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(context.run_config["local_steps"]):
        some = torch.randint(len(x), (context.run_config["batch_size"],))
        steps.zero_grad()
        torch.nn.functional.cross_entropy(model(x[some]), y[some]).backward()
        steps.step()
    records = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(RecordDict(records), reply_to=message)
"""


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words.add_argument("--nodes", type=int, nargs="+", default=[1, 3, 10])
    words.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--few", type=int, default=3, help="rounds of stock and plain")
    words.add_argument(
        "--hidden", type=int, default=64, help="units of 75 parameters each, plus 10"
    )
    words.add_argument("--seconds", type=float, default=300.0, help="at most, for each")
    words.add_argument("--database", action="store_true", help="the SuperLink's state in a file")
    words.add_argument("--out", type=Path)
    args = words.parse_args()
    found = []
    for nodes in args.nodes:
        for kind in args.kinds:
            rounds = args.rounds if kind == "ours" else args.few
            found.append(measured(kind, nodes, rounds, args))
            print(json.dumps(found[-1]), flush=True)  # noqa: T201
    print("\n".join(table(found)))  # noqa: T201
    if args.out:
        about = {"parameters": 75 * args.hidden + 10, "cores": os.cpu_count(), "rows": found}
        args.out.write_text(json.dumps(about, indent=1) + "\n")


def measured(kind: str, nodes: int, rounds: int, args: argparse.Namespace) -> dict[str, Any]:
    """Start one federation, measure it, and stop it."""
    folder = Path(tempfile.mkdtemp(prefix="deployed"))
    app = written(folder / "digits", kind, args.hidden)
    marks: list[tuple[float, str]] = []
    cpu: list[float] = []
    began = time.monotonic()
    kinds = {"stock": kind != "ours", "database": args.database}
    with closing(Local(folder / "federation", nodes, True, True, **kinds)) as local:
        local.start()
        assert local.link is not None
        link = local.link.pid

        def on_line(line: str) -> None:
            marks.append((time.monotonic(), line))
            if re.search(r"\bround \d", line):
                cpu.append(processor_seconds(link))

        config = {"clients": nodes, "rounds": rounds, "local_steps": STEPS, "batch_size": BATCH}
        run = LocalRun(local.control(), app, config, on_line)
        while not run.over() and time.monotonic() < began + args.seconds:
            local.tend()
            time.sleep(0.1)
        over = run.over()
        failure = run.end()
    ended = time.monotonic()
    lines = [(when, line) for when, line in marks if re.search(r"\bround \d", line)]
    result: dict[str, Any] = {"kind": kind, "nodes": nodes, "whole": over, "failure": failure}
    if len(lines) > 1:
        result |= of_ours(folder, began) if kind != "plain" else of_plain(lines, began)
        result["first round after"] = lines[0 if kind != "plain" else 1][0] - began
        result["end"] = ended - lines[-1][0]
        result["rounds"] = len(lines) - (kind == "plain")
        if len(cpu) > 1:
            result["cpu"] = (cpu[-1] - cpu[0]) / (len(cpu) - 1) / nodes
    shutil.rmtree(folder, ignore_errors=True)
    return result


def of_ours(folder: Path, began: float) -> dict[str, float]:
    """From the run file, which has the seconds of every step."""
    from tunefree.record import Record

    path = folder / "federation" / "superlink" / "federation.sqlite"
    with closing(Record.open(path)) as record:
        totals = [row["seconds"] for row in record.history()]
    steps = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
    page = json.loads(path.with_name(f"{path.name}.live.json").read_text())
    there = max(when for when, what in page["events"] if what.endswith(" connected"))
    start = there - time.time() + time.monotonic() - began
    return {"start": start, "opening": sum(steps[:2]), "round": median(steps[2:] or steps[1:])}


def of_plain(lines: list[tuple[float, str]], began: float) -> dict[str, float]:
    """From the server's log: one line when it has started, and one after each round."""
    whens = [when for when, _ in lines]
    steps = [after - before for before, after in pairwise(whens)]
    return {"start": whens[0] - began, "opening": steps[0], "round": median(steps[1:] or steps)}


def written(app: Path, kind: str, hidden: int) -> Path:
    """The app: the template with this model width; plain Flower's apps if `kind` is plain."""
    new_app(app)
    task = app / "digits" / "task.py"
    text = task.read_text()
    model = "nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)"
    assert model in text
    wide = f"nn.Linear(64, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10)"
    task.write_text(text.replace(model, wide))
    if kind == "plain":
        for name, source in (("server_app", PLAIN_SERVER), ("client_app", PLAIN_CLIENT)):
            (app / "digits" / f"{name}.py").write_text(source.replace("PACKAGE", "digits"))
    return app


def processor_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    columns = ("start", "opening", "round", "end", "first round after", "cpu")
    yield "| nodes | kind | " + " | ".join(columns) + " | rounds |"
    yield "|---" * (len(columns) + 3) + "|"
    for row in rows:
        values = [f"{row[c]:.2f}" if c in row else "-" for c in columns]
        yield f"| {row['nodes']} | {row['kind']} | {' | '.join(values)} | {row.get('rounds', 0)} |"


if __name__ == "__main__":
    sys.exit(main())
