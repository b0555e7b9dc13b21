"""Fine-tune a frozen network with LoRA: clients train and send only the adapters.

    pip install peft
    python examples/lora_with_peft.py

A small network is trained centrally on the digits 0 to 4. Then ten clients, with all ten digits
split very unevenly, adapt it together: `peft` freezes its weights and adds adapters of rank 4, and
tunefree trains and sends only the parameters that require grad.
"""

import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import nn

import tunefree


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training and test images of 8x8 digits, from -1 to 1."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    x = x.float() / 8 - 1
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return x[order[360:]], y[order[360:]], x[order[:360]], y[order[:360]]


def pretrained(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """A network trained on half of the digits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
    model.append(nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[y < 5]), y[y < 5]).backward()
        optimizer.step()
    return model


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def main(rounds: int = 60) -> tunefree.Run:
    x, y, *test = data()
    base = pretrained(x, y)
    before = accuracy(base, *test)
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["0", "2", "4"]))
    clients = (x, y), tunefree.partition.dirichlet(y.numpy(), clients=10, alpha=0.3)
    run = tunefree.train(model, clients, tuple(test), rounds=rounds, per_round=5)
    whole = sum(p.numel() for p in model.parameters())
    print(f"{run.objective.d:,} of {whole:,} parameters were trained and sent")
    print(f"test accuracy {before:.3f} before, {accuracy(run.model, *test):.3f} after")
    return run


if __name__ == "__main__":
    main()
