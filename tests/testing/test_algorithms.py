"""What every algorithm must follow, whoever wrote it."""

from __future__ import annotations

import numpy as np
import torch

from tests.identities.by_hand import by_hand
from tests.testing.variants import SYS, every_algorithm, every_subject
from tunefree.core import Algorithm
from tunefree.testing import quadratic
from tunefree.testing.check import CHECKS, Subject, findings
from tunefree.testing.observe import vectors

PROBLEM = quadratic(N=SYS.N)


@every_subject
def test_it_follows_the_contract(subject: Subject) -> None:
    assert list(findings(subject)) == [(check, "") for check in CHECKS]


@every_algorithm
def test_no_gradient_means_no_move(algo: Algorithm) -> None:
    at_optimum = PROBLEM._replace(b=np.tile(PROBLEM.theta0, (SYS.N, 1)), noise=0.0)
    for moment in by_hand(algo, at_optimum):
        for v in vectors((moment.server, moment.clients)):
            assert torch.isfinite(v).all()
        np.testing.assert_array_equal(moment.server.theta, PROBLEM.theta0)
