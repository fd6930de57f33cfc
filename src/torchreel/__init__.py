"""Record a PyTorch run once; then see it, size it, replay it."""

from torchreel._version import __version__
from torchreel.reel import Reel, load

__all__ = ["Reel", "__version__", "load"]
