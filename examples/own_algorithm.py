"""Your own method in one file, checked and compared: FedAvg with the median of the uploads.

    python examples/own_algorithm.py

Three of 20 clients send ten times the opposite of what they found: they spoil a mean, PolarFL's
too, but no median.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits

import tunefree
from tunefree.core import Exchange, Method, NoState, Oracle, Reply
from tunefree.methods import FedAvg
from tunefree.methods.local_sgd import Model, Up


@dataclass(frozen=True)
class MedianAvg(Method):
    eta: float = 0.1

    def server(self, theta0: torch.Tensor) -> Model:
        return Model(theta0)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: s, self.local, self.aggregate),)

    def local(self, client: NoState, down: Model, F: Oracle) -> tuple[NoState, Up]:
        theta = down.theta
        for _ in range(self.sys.K):
            theta = theta - self.eta * F.grad(theta, F.draw())
        return client, Up(down.theta - theta)

    def aggregate(self, s: Model, replies: Sequence[Reply]) -> Model:
        return Model(s.theta - torch.stack([r.up.delta for r in replies]).quantile(0.5, dim=0))


def main(rounds: int = 60) -> list[tunefree.Run]:
    print("what must change in MedianAvg:", tunefree.check_algorithm(MedianAvg) or "nothing")
    torch.manual_seed(0)
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    clients = [(x[i:1500:20].float() / 16, y[i:1500:20]) for i in range(20)]
    task = torch.nn.Linear(64, 10), clients, (x[1500:].float() / 16, y[1500:])
    both = FedAvg(eta=0.1), MedianAvg(eta=0.1)
    wrong = {"attack": "scaled:-10:3", "rounds": rounds}
    runs = [tunefree.train(*task, algorithm=each, **wrong) for each in both]
    print(*runs, sep="\n")
    return runs


if __name__ == "__main__":
    main()
