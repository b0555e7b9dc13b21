"""The kit that tests a method, whoever wrote it: its contract, a problem for its twin, its cost."""

from tunefree.testing.check import check_algorithm as check_algorithm
from tunefree.testing.cost import Cost as Cost
from tunefree.testing.cost import cost as cost
from tunefree.testing.problem import Array as Array
from tunefree.testing.problem import Problem as Problem
from tunefree.testing.problem import QuadraticOracle as QuadraticOracle
from tunefree.testing.problem import Trace as Trace
from tunefree.testing.problem import agree as agree
from tunefree.testing.problem import quadratic as quadratic
from tunefree.testing.problem import simulate as simulate
