"""The CUDA caching allocator as a model. Needs neither torch nor a GPU."""

from torchreel.allocator.conf import Conf
from torchreel.allocator.gpu_only import GpuOnly
from torchreel.allocator.pinned import PinnedSimulation, simulate_pinned
from torchreel.allocator.predict import Prediction, predict
from torchreel.allocator.simulate import DeviceSimulation, Simulation, simulate
from torchreel.allocator.sweep import sweep
from torchreel.allocator.verify import DeviceVerification, Verification, verify

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
