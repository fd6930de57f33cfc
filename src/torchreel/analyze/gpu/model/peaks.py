"""What devices can do at most, by their model: dense floating point operations by dtype, and bytes of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchreel.errors import OptionError

_TERA, _GIGA = 10**12, 10**9


@dataclass(frozen=True)
class Peak:
    """FLOP per second by dtype (or of all, under an empty name), bytes per second, and where that is said."""

    flops: dict[str, float]
    bytes: float | None
    source: str

    def of(self, dtype: str) -> float | None:
        """FLOP per second for a dtype, or None."""
        return self.flops.get(dtype, self.flops.get(""))


def _peak(source: str, gigabytes: float, **teraflops: float) -> Peak:
    flops = {dtype: value * _TERA for dtype, value in teraflops.items()}
    if "float16" in flops:
        flops.setdefault("bfloat16", flops["float16"])
    return Peak(flops, gigabytes * _GIGA, source)


# Without sparsity. Of several rows that fit the first holds. MI200: of one die, which torch sees as a device.
_MODELS: tuple[tuple[str, Peak], ...] = (
    (r"B200", _peak("NVIDIA DGX B200 data sheet", 8000, tf32=1125, float16=2250, float8=4500)),
    (r"H200", _peak("NVIDIA H200 data sheet", 4800, float64=34, float32=67, tf32=494.7, float16=989.4, float8=1978.9)),
    (r"H100.*PCIe", _peak("NVIDIA H100 data sheet", 2000, float64=26, float32=51, tf32=378, float16=756, float8=1513)),
    (r"H100", _peak("NVIDIA H100 data sheet", 3350, float64=34, float32=67, tf32=494.7, float16=989.4, float8=1978.9)),
    (r"A100.*80GB.*PCIe", _peak("NVIDIA A100 data sheet", 1935, float64=9.7, float32=19.5, tf32=156, float16=312)),
    (r"A100.*80GB", _peak("NVIDIA A100 data sheet", 2039, float64=9.7, float32=19.5, tf32=156, float16=312)),
    (r"A100", _peak("NVIDIA A100 data sheet", 1555, float64=9.7, float32=19.5, tf32=156, float16=312)),
    (r"L40S", _peak("NVIDIA L40S data sheet", 864, float32=91.6, tf32=183, float16=362, float8=733)),
    (r"\bL4\b", _peak("NVIDIA L4 data sheet", 300, float32=30.3, tf32=60, float16=121, float8=242)),
    (r"\bA10\b", _peak("NVIDIA A10 data sheet", 600, float32=31.2, tf32=62.5, float16=125)),
    (r"RTX 4090", _peak("NVIDIA Ada whitepaper", 1008, float32=82.6, tf32=82.6, float16=165.2, float8=330.3)),
    (r"RTX 3090\b", _peak("NVIDIA GA102 whitepaper", 936, float32=35.6, tf32=35.6, float16=71)),
    (r"RTX 2080 Ti", Peak({"float32": 13.4e12, "float16": 53.8e12}, 616e9, "NVIDIA Turing whitepaper")),
    (r"\bT4\b", Peak({"float32": 8.1e12, "float16": 65e12}, 320e9, "NVIDIA T4 data sheet")),
    (r"V100.*PCIE", Peak({"float64": 7e12, "float32": 14e12, "float16": 112e12}, 900e9, "NVIDIA V100 data sheet")),
    (r"V100", Peak({"float64": 7.8e12, "float32": 15.7e12, "float16": 125e12}, 900e9, "NVIDIA V100 data sheet")),
    (r"GP100", Peak({"float64": 5.2e12, "float32": 10.3e12, "float16": 20.7e12}, 717e9, "Quadro GP100 data sheet")),
    (
        r"MI325X",
        _peak("AMD MI325X data sheet", 6000, float64=81.7, float32=163.4, tf32=653.7, float16=1307.4, float8=2614.9),
    ),
    (
        r"MI300X",
        _peak("AMD MI300X data sheet", 5300, float64=81.7, float32=163.4, tf32=653.7, float16=1307.4, float8=2614.9),
    ),
    (r"MI250X", _peak("AMD MI250X data sheet", 1638, float64=23.9, float32=23.9, float16=191.5)),
    (r"MI2[15]0", _peak("AMD MI210 data sheet", 1638, float64=22.6, float32=22.6, float16=181)),
)
_SUFFIXES = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15}
_PEAK = re.compile(r"(?P<flops>\d+(\.\d+)?)(?P<unit>[GTP]?)(,(?P<bytes>\d+(\.\d+)?)(?P<per>[GT])B)?")


def peak_of(model: str | None) -> Peak | None:
    """The peak of a known model, or None."""
    return next((peak for pattern, peak in _MODELS if re.search(pattern, model or "")), None)


def parse_peak(text: str) -> Peak:
    """989T, or with the memory's bytes per second 989T,3.35TB, for `--peak`; an OptionError says what is wrong."""
    match = _PEAK.fullmatch(text.strip())
    flops = float(match["flops"]) * _SUFFIXES[match["unit"]] if match else 0.0
    if match is None or flops <= 0:
        raise OptionError(
            f"The peak {text!r} cannot be read: give FLOP per second, and after a comma bytes per second if you know "
            "them, as in 989T or 989T,3.35TB."
        )
    memory = float(match["bytes"]) * _SUFFIXES[match["per"]] if match["bytes"] else None
    return Peak({"": flops}, memory or None, "--peak")
