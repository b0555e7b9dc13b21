"""Texts with two inputs, a title and a body, and a model that takes both by name.

    python examples/two_inputs.py

In these synthetic texts the title shows the topic, the body the tone, and the class is both: who
reads only one of them is right half the time. Each of the 20 clients has mostly one topic.
"""

import torch
from torch import Tensor, nn

import tunefree

WORDS, TITLE, BODY = 200, 6, 30  # size of the vocabulary, words per title and per body


def texts(n: int, topics: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """n titles and bodies, a third of whose words show the topic or the tone; and the classes."""
    topic = torch.multinomial(topics, n, replacement=True)
    tone = torch.randint(2, (n,))

    def words(length: int, kind: Tensor) -> Tensor:
        noise = torch.randint(WORDS, (n, length))
        telling = 20 * kind[:, None] + torch.randint(20, (n, length))  # words 0-19 or 20-39
        return torch.where(torch.rand(n, length) < 1 / 3, telling, noise)

    return {"title": words(TITLE, topic), "body": words(BODY, tone)}, 2 * topic + tone


class Reader(nn.Module):
    """The mean embedding of each part, and a small network on both."""

    def __init__(self) -> None:
        super().__init__()
        self.title = nn.EmbeddingBag(WORDS, 16)
        self.body = nn.EmbeddingBag(WORDS, 16)
        self.classify = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, title: Tensor, body: Tensor) -> Tensor:
        return self.classify(torch.cat([self.title(title), self.body(body)], dim=1))


def main(rounds: int = 60) -> tunefree.Run:
    torch.manual_seed(0)
    mostly = [torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9])]
    clients = [texts(150, mostly[client % 2]) for client in range(20)]
    test = texts(1000, torch.ones(2))
    run = tunefree.train(Reader(), clients, test, rounds=rounds, per_round=5)
    both = run.history[-1]["accuracy"]
    print(f"test accuracy {both:.3f}; reading titles or bodies alone gives 0.5 at best")
    return run


if __name__ == "__main__":
    main()
