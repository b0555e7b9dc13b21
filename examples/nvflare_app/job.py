"""A job for NVFlare (`pip install nvflare tunefree`) without a learning rate, in its simulator.

cd examples/nvflare_app
python job.py
"""

import sys
from pathlib import Path

import torch
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from server import PolarFL
from task import accuracy, build


def main(workspace, clients=5, rounds=30):
    file = Path(workspace).absolute() / "model.pt"
    job = FedJob(name="polarfl", min_clients=clients)
    job.to_server(PolarFL(clients, rounds, str(file)))
    job.to_server("task.py")
    for i in range(clients):
        job.to(ScriptRunner(script="client.py"), f"site-{i + 1}")
        job.to("task.py", f"site-{i + 1}")
    job.simulator_run(str(workspace), threads=clients)
    model = build()
    model.load_state_dict(torch.load(file))
    return accuracy(model)


if __name__ == "__main__":
    print(f"accuracy {main(*sys.argv[1:] or ['workspace']):.3f}")
