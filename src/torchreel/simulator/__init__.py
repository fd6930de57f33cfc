"""The CUDA caching allocator as a model. Needs neither torch nor a GPU."""

from torchreel.simulator.conf import Conf
from torchreel.simulator.pinned import PinnedSimulation, simulate_pinned
from torchreel.simulator.predict.gpu_only import GpuOnly
from torchreel.simulator.predict.predict import Prediction, predict
from torchreel.simulator.recorded.verify import DeviceVerification, Verification, verify
from torchreel.simulator.simulate import DeviceSimulation, Simulation, simulate
from torchreel.simulator.sweep.sweep import sweep

__all__ = [
    "Conf",
    "DeviceSimulation",
    "DeviceVerification",
    "GpuOnly",
    "PinnedSimulation",
    "Prediction",
    "Simulation",
    "Verification",
    "predict",
    "simulate",
    "simulate_pinned",
    "sweep",
    "verify",
]
