"""What a recording does not have, what that means for the answers, and how to record it."""

from __future__ import annotations

import numpy as np

from torchreel._units import count_text
from torchreel.analyze.gpu.activities import COMMUNICATION, Activities
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING

NO_DEVICE = (
    "No activity of a device was recorded. To record it: torch.profiler.profile(activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA]) around the steps, prof.export_chrome_trace('trace.json') after them, then "
    "'torchreel import trace.json -o run.reel'."
)
_CPU = "What is said below is of the CPU: when an operator ran, on whatever thread."
_NO_STEPS = "No step was recorded: call prof.step() after each, then --step N answers for one of them."


def missing(reel: Reel, found: Activities, step: int | None) -> list[str]:
    """Sentences, the most important first; none, if all is there."""
    steps = reel.table("steps", ["step"]).num_rows
    if not len(reel.table("kernels", ["id"])):
        of_cpu = [_CPU] if reel.table("ops", ["id"]).num_rows else []
        return [NO_DEVICE, *of_cpu, *([_NO_STEPS] if step is not None and not steps else [])]
    sentences = [_NO_STEPS] if not steps else []
    if not len(found):
        return [*sentences, "No activity was launched there."]
    return [*_early_end(reel), *sentences, *_launches(found), *_blocks(found), *_communication(reel, found)]


def _early_end(reel: Reel) -> list[str]:
    ended = [
        row["name"] for row in reel.table("processes", ["name", "complete"]).to_pylist() if row["complete"] is False
    ]
    return [f"The recording of {', '.join(ended[:3])} ends early: what came after is not counted."] if ended else []


def _launches(found: Activities) -> list[str]:
    lost = int((~found.launched).sum())
    if not lost:
        return []
    return [
        f"{count_text(lost, 'activity')} of {len(found):,} "
        f"{'has' if lost == 1 else 'have'} no launch in the recording: the time counts, but op, module and step are "
        "unknown. Record a step more before the first that matters (schedule(warmup=1)), and with ProfilerActivity.CPU."
    ]


def _blocks(found: Activities) -> list[str]:
    if np.all(np.isnan(found.blocks_per_sm)) and np.all(np.isnan(found.occupancy)):
        return ["No kernel says its blocks per SM or its occupancy, which only CUDA's traces have."]
    return []


def _communication(reel: Reel, found: Activities) -> list[str]:
    talk = found.kind == COMMUNICATION
    if not talk.any():
        return []
    unknown = int((talk & (found.collective == NOTHING)).sum())
    sentences = []
    if unknown:
        sentences.append(
            f"Of {unknown:,} of {count_text(int(talk.sum()), 'communication kernel')} neither group nor bytes are "
            "recorded, so their bus bandwidth is unknown: newer versions of torch write them."
        )
    if len(reel.parts) == 1:
        sentences.append(
            "One rank alone does not show who was late: 'torchreel import rank0.json rank1.json ... -o job.reel'."
        )
    return sentences
