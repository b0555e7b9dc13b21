"""A torch data set with random augmentation, partitioned over clients.

    python examples/own_data_with_augmentation.py

The model should recognise digits anywhere in the image, but clients have few images, all centred. A
data set that shifts an image at random whenever it is read makes up for that. The shifts are seeded
by the run: the same seed gives a bit-identical model.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

import tunefree


def shifted(picture: Tensor) -> Tensor:
    """The image, moved by at most one pixel in each direction."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    padded = nn.functional.pad(picture, (1, 1, 1, 1))
    return padded[:, 1 - down : 9 - down, 1 - right : 9 - right]


class Digits(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, x: Tensor, targets: Tensor, augmented: bool) -> None:
        self.x, self.targets, self.augmented = x, targets, augmented

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return shifted(self.x[i]) if self.augmented else self.x[i], self.targets[i]


def main(rounds: int = 60) -> dict[str, tunefree.Run]:
    torch.manual_seed(0)
    bunch = load_digits()
    x = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(bunch.target)
    test = torch.stack([shifted(picture) for picture in x[1000:]]), y[1000:]
    partition = tunefree.partition.dirichlet(y[:1000].numpy(), clients=20, alpha=0.5)
    network = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()]
    model = nn.Sequential(*network, nn.Flatten(), nn.Linear(144, 10))
    runs = {}
    for name, augmented in {"as they are": False, "shifted": True}.items():
        clients = Digits(x[:1000], y[:1000], augmented), partition
        runs[name] = tunefree.train(model, clients, test, rounds=rounds, per_round=5)
        accuracy = runs[name].history[-1]["accuracy"]
        print(f"trained on digits {name}: accuracy {accuracy:.3f} on shifted ones")
    return runs


if __name__ == "__main__":
    main()
