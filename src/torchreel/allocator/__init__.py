"""The CUDA caching allocator as a model. Needs neither torch nor a GPU."""

from torchreel.allocator.conf import Conf
from torchreel.allocator.predict import GpuOnly, Prediction, predict
from torchreel.allocator.simulate import DeviceSimulation, Simulation, simulate
from torchreel.allocator.verify import DeviceVerification, Verification, verify

__all__ = ["Conf", "DeviceSimulation", "DeviceVerification", "Simulation", "Verification", "simulate", "verify"]
