"""The public name of torchreel.simulator: the CUDA caching allocator as a model. Needs neither torch nor a GPU."""

from torchreel.simulator import (
    Conf,
    DeviceSimulation,
    DeviceVerification,
    GpuOnly,
    PinnedSimulation,
    Prediction,
    Simulation,
    Verification,
    predict,
    simulate,
    simulate_pinned,
    sweep,
    verify,
)

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
