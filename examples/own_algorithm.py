"""Your own method in one file, checked and compared: FedAvg with the median of the uploads.

    python examples/own_algorithm.py

Three of 20 clients have inverted, rescaled images: they spoil a mean, PolarFL's too, but no median.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits

import tunefree
from tunefree.core import Exchange, Oracle, Reply, System
from tunefree.methods.fedavg import Client, Down, Server, Up


@dataclass(frozen=True)
class MedianAvg:
    sys: System  # N clients, S per round, K local steps, T rounds
    eta: float = 0.1

    def server(self, theta0: torch.Tensor) -> Server:
        return Server(theta0)

    def client(self, theta0: torch.Tensor) -> Client:
        return Client()

    def opening(self) -> tuple[()]:
        return ()

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Down, Up, lambda s: Down(s.theta), self.local, self.aggregate),)

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Up]:
        theta = down.theta
        for _ in range(self.sys.K):
            theta = theta - self.eta * F.grad(theta, F.draw())
        return client, Up(down.theta - theta)

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        return Server(s.theta - torch.stack([r.up.delta for r in replies]).quantile(0.5, dim=0))


def main(rounds: int = 60) -> list[tunefree.Run]:
    print("what must change in MedianAvg:", tunefree.check_algorithm(MedianAvg) or "nothing")
    torch.manual_seed(0)
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    clients = [(x[i:1500:20].float() / 16, y[i:1500:20]) for i in range(20)]
    clients[:3] = [(255 * (1 - pixels), labels) for pixels, labels in clients[:3]]
    task = torch.nn.Linear(64, 10), clients, (x[1500:].float() / 16, y[1500:])
    both = FedAvg(eta=0.1), MedianAvg(eta=0.1)
    runs = [tunefree.train(*task, algorithm=each, rounds=rounds) for each in both]
    print(*runs, sep="\n")
    return runs


if __name__ == "__main__":
    main()
