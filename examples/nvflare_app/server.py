"""The server's workflow: NVFlare's ModelController around tunefree's server."""

import torch
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.model_controller import ModelController
from task import accuracy, build

from tunefree.optim import Server


def numpy_of(state):
    return {name: value.numpy() for name, value in state.items()}


class PolarFL(ModelController):
    """Rounds of local steps at the clients and one step along the mean of their uploads."""

    def __init__(self, num_clients, num_rounds, file):
        super().__init__()
        self.num_clients, self.num_rounds, self.file = num_clients, num_rounds, file

    def run(self):
        model = build()
        server = Server(model, local_steps=10)
        for current in range(self.num_rounds):
            clients = self.sample_clients(self.num_clients)
            sent = FLModel(params=numpy_of(server.start()), current_round=current)
            sent.meta["polarfl"] = server.config(len(clients))
            results = self.send_model_and_wait(targets=clients, data=sent)
            uploads = [
                {name: torch.from_numpy(value) for name, value in result.params.items()}
                for result in sorted(results, key=lambda result: result.meta["client_name"])
            ]
            for wrong in filter(None, map(server.wrong, uploads)):
                self.warning(f"an upload is not used: {wrong}")
            server.step(upload for upload in uploads if not server.wrong(upload))
            model.load_state_dict(server.model())
            self.info(f"round {server.rounds}: accuracy {accuracy(model):.3f}")
        torch.save(server.model(), self.file)
