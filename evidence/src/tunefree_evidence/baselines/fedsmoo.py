"""FedSMOO: FedDyn at the worst point nearby, on which the clients must agree too.

Sun, Shen, Chen, Ding, Tao, "Dynamic regularized sharpness aware minimization in federated learning:
approaching global consistency and smooth landscape", ICML 2023 (lines numbered by us; h, h_i and α
are FedDyn's).

     1  require θ^0; h = s = 0; h_i = μ_i = 0
     2  sample S clients; each starts at θ_i = θ
     3      p = ∇F(θ_i; ξ) - μ_i - s;  e = ρ p / ||p||;  μ_i = μ_i + e - s
     4      θ_i = θ_i - η (∇F(θ_i + e; ξ) - h_i + α (θ_i - θ))       K times
     5      h_i = h_i - α (θ_i - θ)
     6      upload Δ_i = θ - θ_i and μ_i
     7  h = h - (α/N) Σ (θ_i - θ);  θ = mean_i θ_i - h / α
     8  q = mean_i μ_i;  s = ρ q / ||q||
     9  download θ and s

Wire: 2d down, 2d up. Memory: h_i and μ_i, left as they are while away. Tuning: η, α, ρ.
Deviations: line 8 is that of the authors' code, which leaves out the clients' last e of the paper;
no clipping and no weight decay, unlike the code. Both gradients of a step are of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tunefree.core import About, Exchange, Oracle, Replies, Vec, mean, unit
from tunefree_evidence.baselines.feddyn import FedDyn


class Server(NamedTuple):
    theta: Vec
    h: Vec
    s: Vec


class Client(NamedTuple):
    h_i: Vec
    mu_i: Vec


class Down(NamedTuple):
    theta: Vec
    s: Vec


class Up(NamedTuple):
    delta: Vec
    mu_i: Vec


@dataclass(frozen=True)
class FedSMOO(FedDyn):
    rho: float = 0.1

    about: ClassVar[About] = About(
        title="FedSMOO",
        family="dynamic regularisation, sharpness-aware",
        paper="Sun et al., ICML 2023",
        grid={"eta": (1e-2, 3e-2, 1e-1, 3e-1), "alpha": (1e-2, 1e-1), "rho": (1e-2, 1e-1)},
    )

    def server(self, theta0: Vec) -> Any:
        return Server(*super().server(theta0), s=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Any:
        return Client(h_i=0 * theta0, mu_i=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        send = Exchange(Down, Up, lambda s: Down(s.theta, s.s), self.local, self.aggregate)
        return (send,)  # 9

    def local(self, client: Any, down: Any, F: Oracle) -> tuple[Any, Any]:
        (h_i, mu_i), (theta, s), eta, alpha = client, down, self.eta, self.alpha
        D = 0 * h_i  # θ_i - θ = -η D
        for _ in range(self.sys.K):
            theta_i, xi = theta - eta * D, F.draw()
            e = self.rho * unit(F.grad(theta_i, xi) - mu_i - s)  # 3
            mu_i = mu_i + e - s
            D = D + F.grad(theta_i + e, xi) - h_i - alpha * eta * D  # 4
        return Client(h_i + alpha * eta * D, mu_i), Up(eta * D, mu_i)  # 5, 6

    def aggregate(self, s: Any, replies: Replies) -> Any:
        theta, h = super().aggregate(s, replies)  # 7
        return Server(theta, h, self.rho * unit(mean(r.up.mu_i for r in replies)))  # 8
