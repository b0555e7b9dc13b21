"""Every method: a class whose values are what a user chose, such as `FedAvg(eta=0.3)`."""

from tunefree.core import Method as Method
from tunefree.methods.adamasfl import AdaMasFL as AdaMasFL
from tunefree.methods.ca2fl import CA2FL as CA2FL
from tunefree.methods.comparfrefl import ComParFreFL as ComParFreFL
from tunefree.methods.defedavg_niid import DeFedAvgNIID as DeFedAvgNIID
from tunefree.methods.delta_sgd import DeltaSGD as DeltaSGD
from tunefree.methods.fadas import FADAS as FADAS
from tunefree.methods.fafed import FAFED as FAFED
from tunefree.methods.fed_ef_ams import FedEFAMS as FedEFAMS
from tunefree.methods.fed_ef_sgd import FedEFSGD as FedEFSGD
from tunefree.methods.fedams_local import FedAMSLocal as FedAMSLocal
from tunefree.methods.fedams_server import FedAMSServer as FedAMSServer
from tunefree.methods.fedavg import FedAvg as FedAvg
from tunefree.methods.fedavgm import FedAvgM as FedAvgM
from tunefree.methods.fedbuff import FedBuff as FedBuff
from tunefree.methods.fedcm import FedCM as FedCM
from tunefree.methods.feddyn import FedDyn as FedDyn
from tunefree.methods.fedexp import FedExP as FedExP
from tunefree.methods.fednova import FedNova as FedNova
from tunefree.methods.fedopt import FedAdagrad as FedAdagrad
from tunefree.methods.fedopt import FedAdam as FedAdam
from tunefree.methods.fedopt import FedYogi as FedYogi
from tunefree.methods.fedprox import FedProx as FedProx
from tunefree.methods.fedsps import FedSPS as FedSPS
from tunefree.methods.local_sgd import LocalSGD as LocalSGD
from tunefree.methods.local_sgd_c import LocalSGDC as LocalSGDC
from tunefree.methods.masfl import MasFL as MasFL
from tunefree.methods.mime import Mime as Mime
from tunefree.methods.mime import MimeLite as MimeLite
from tunefree.methods.padamfed import PAdaMFed as PAdaMFed
from tunefree.methods.padamfed_vr import PAdaMFedVR as PAdaMFedVR
from tunefree.methods.parfrefl import ParFreFL as ParFreFL
from tunefree.methods.polarfl import PolarFL as PolarFL
from tunefree.methods.polarfl_stateless import PolarFLStateless as PolarFLStateless
from tunefree.methods.scafcom import Scafcom as Scafcom
from tunefree.methods.scaffold import Scaffold as Scaffold
from tunefree.methods.scaffold_m import ScaffoldM as ScaffoldM
from tunefree.methods.scaffold_m_vr import ScaffoldMVR as ScaffoldMVR
from tunefree.methods.scaffold_norm import ScaffoldNorm as ScaffoldNorm
from tunefree.methods.scallion import Scallion as Scallion
from tunefree.methods.slowmo import SlowMo as SlowMo
from tunefree.wire import from_spec

compressor = from_spec  # from its text: PolarFL(C=compressor("top:0.05"))
