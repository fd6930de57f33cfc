"""Advice: what a sweep says about which setting to use, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.simulator.conf import Conf
from torchreel.simulator.sweep.trials import Trial, Trials, least_gain

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Advice:
    """What to set, if anything, and why."""

    conf: str | None  # the option string to use; None: leave it as it is
    gain: int  # bytes that it reserves less than the current setting
    sentences: tuple[str, ...]

    @property
    def line(self) -> str | None:
        """The line for a shell."""
        if self.conf is None:
            return None
        return f"{VARIABLE}={self.conf}" if self.conf else f"unset {VARIABLE}"


def advise(trials: Trials) -> Advice:
    """What to set: a setting that fits where the current one does not, or that saves enough to be worth it."""
    if trials.capacity is not None and not trials.trials[0].fits:
        return Advice(None, 0, (_none_fits(trials), *_smallest(trials)))
    if not trials.current.fits:
        return _change(trials, _now_fits(trials))
    if trials.gain >= least_gain(trials.current.peak_reserved):
        return _change(trials, _saves(trials))
    return Advice(None, 0, (*_fits_already(trials), _none_helps(trials), *_smallest(trials)))


def _change(trials: Trials, sentence: str) -> Advice:
    best = trials.best
    costs = cost(best, trials.current)
    return Advice(best.text, trials.gain, (sentence, *costs, *_smallest(trials)))


def _now_fits(trials: Trials) -> str:
    retries = f", after giving back its cache {_times(trials.best.retries)}" if trials.best.retries else ""
    return (
        f"The run does not fit in {room(trials.capacity or 0)} with {name(trials.current.conf)}. "
        f"With {name(trials.best.conf)} it does{retries}: it reserves {mib(trials.best.peak_reserved)} at most."
    )


def _saves(trials: Trials) -> str:
    share = trials.gain / trials.current.peak_reserved
    return (
        f"With {name(trials.best.conf)} the run would reserve {mib(trials.best.peak_reserved)} at its peak instead of "
        f"{mib(trials.current.peak_reserved)}: {mib(trials.gain)} less ({share:.1%})."
    )


def _fits_already(trials: Trials) -> tuple[str, ...]:
    if trials.capacity is None:
        return ()
    return (f"The run fits in {room(trials.capacity)} with {name(trials.current.conf)}.",)


def _none_helps(trials: Trials) -> str:
    current = trials.current
    slack = current.peak_reserved - current.peak_allocated
    count = len(trials.trials) - 1
    if slack < least_gain(current.peak_reserved):
        return (
            f"No other setting helps: {mib(current.peak_allocated)} of the {mib(current.peak_reserved)} that are "
            "reserved at the peak are tensors, and no setting of the allocator makes those smaller."
        )
    already = "is as good as any" if trials.best.current else "is nearly as good as the best"
    return (
        f"No other setting helps: {name(current.conf)} {already} of the {count} others that were tried. The "
        f"{mib(slack)} that are reserved beyond the {mib(current.peak_allocated)} of tensors at their peak come from "
        "the order and the sizes of the requests."
    )


def _none_fits(trials: Trials) -> str:
    capacity = trials.capacity or 0
    if trials.needed > capacity:
        return (
            f"No setting makes the run fit in {room(capacity)}: its tensors alone need {mib(trials.needed)} at their "
            f"peak. It takes smaller tensors (batch, sequence, precision, checkpointing) to save "
            f"{mib(trials.needed - capacity)}."
        )
    return (
        f"No setting that was tried makes the run fit in {room(capacity)}, though its tensors need only "
        f"{mib(trials.needed)} at their peak: the gaps between them are too small for what is asked for."
    )


def _smallest(trials: Trials) -> tuple[str, ...]:
    if trials.smallest is None:
        return ()
    conf, capacity = trials.smallest
    return (f"The smallest device on which it fits has {mib(capacity)} for the allocator, with {name(conf)}.",)


def cost(best: Trial, current: Trial) -> tuple[str, ...]:
    """What a setting costs, for each of its options that the current one does not have."""
    sentences = []
    conf = best.conf
    if conf.expandable_segments and not current.conf.expandable_segments:
        sentences.append(
            "expandable_segments needs Linux and a driver with virtual memory management; memory of such segments is "
            "shared between processes (CUDA IPC) only from torch 2.5 on, and not by every library."
        )
    if conf.max_split_size is not None and conf.max_split_size != current.conf.max_split_size:
        sentences.append("max_split_size_mb keeps large blocks whole: more calls of cudaMalloc where sizes vary.")
    if any(conf.roundup_power2_divisions) and conf.roundup_power2_divisions != current.conf.roundup_power2_divisions:
        more = best.peak_allocated - current.peak_allocated
        sentences.append(f"roundup_power2_divisions makes blocks larger: {mib(max(0, more))} more at their peak.")
    if conf.garbage_collection_threshold and not current.conf.garbage_collection_threshold:
        sentences.append("garbage_collection_threshold frees cached blocks with cudaFree, which waits for the device.")
    if best.retries:
        sentences.append(f"The cache is given back {_times(best.retries)}: each time the device is waited for.")
    if best.device_calls > 2 * current.device_calls:
        sentences.append(
            f"It calls the driver {best.device_calls:,} times instead of {current.device_calls:,}, which takes time."
        )
    return tuple(sentences)


def name(conf: Conf) -> str:
    """A setting in a sentence."""
    return str(conf) or "PyTorch's default"


def room(size: int) -> str:
    """A device's memory, as people say it if it is a round number."""
    gib = size / (1 << 30)
    return f"{gib:g} GiB" if gib >= 1 and round(gib * 10) == gib * 10 else mib(size)


def mib(size: int) -> str:
    """Bytes, in the unit in which the allocator's options are given."""
    value = size / (1 << 20)
    return f"{value:,.0f} MiB" if value >= 100 or value == int(value) else f"{value:,.1f} MiB"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
