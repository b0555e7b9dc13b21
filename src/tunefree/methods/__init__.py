"""Every method: a class whose values are what a user chose, such as `FedAvg(eta=0.3)`."""

from tunefree.core import Method as Method
from tunefree.methods.adamasfl import AdaMasFL as AdaMasFL
from tunefree.methods.comparfrefl import ComParFreFL as ComParFreFL
from tunefree.methods.fedavg import FedAvg as FedAvg
from tunefree.methods.fedavgm import FedAvgM as FedAvgM
from tunefree.methods.fedbuff import FedBuff as FedBuff
from tunefree.methods.fednova import FedNova as FedNova
from tunefree.methods.fedopt import FedAdagrad as FedAdagrad
from tunefree.methods.fedopt import FedAdam as FedAdam
from tunefree.methods.fedopt import FedYogi as FedYogi
from tunefree.methods.fedprox import FedProx as FedProx
from tunefree.methods.local_sgd import LocalSGD as LocalSGD
from tunefree.methods.masfl import MasFL as MasFL
from tunefree.methods.padamfed import PAdaMFed as PAdaMFed
from tunefree.methods.padamfed_vr import PAdaMFedVR as PAdaMFedVR
from tunefree.methods.parfrefl import ParFreFL as ParFreFL
from tunefree.methods.polarfl import PolarFL as PolarFL
from tunefree.methods.polarfl_stateless import PolarFLStateless as PolarFLStateless
from tunefree.methods.scaffold import Scaffold as Scaffold
from tunefree.wire import from_spec

compressor = from_spec  # from its text: PolarFL(C=compressor("top:0.05"))
