"""What a recording on the CPU cannot tell about memory on a GPU: sentences, by what the program did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.simulator.predict.cpu_run import CpuRun

# Ops that allocate otherwise on a GPU, by a rule that no recorded run shows, and what is known of it.
_OTHERWISE = (
    (
        ("aten::convolution", "aten::_convolution"),
        "convolutions: cuDNN chooses an algorithm when it runs, and takes a workspace for it that may be large.",
    ),
    (
        ("aten::scaled_dot_product_attention",),
        "calls of scaled_dot_product_attention: the GPU decides which kernel runs, and whether it keeps all scores.",
    ),
    (
        ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"),
        "recurrent layers: cuDNN keeps all weights in one more buffer, and a reserve for the backward pass.",
    ),
    (
        ("aten::sort", "aten::topk", "aten::unique_dim", "aten::_unique2", "aten::nonzero"),
        "sorts and searches: they work in temporary memory on a GPU.",
    ),
)


def unknown_in(run: CpuRun) -> Iterator[str]:
    """What cannot be known of this run."""
    counts = run.counts()
    for names, sentence in _OTHERWISE:
        count = max(counts.get(name, 0) for name in names)
        if count:
            yield f"{count:,} {sentence}"
    moves = run.moves()
    if moves:
        yield f"{moves:,} calls of .to() had nothing to copy on the CPU; on a GPU, those of a tensor of the host do."
    yield (
        "Tensors that the program leaves on the host, such as a data set, are counted as if they were on the GPU, "
        "and memory that is allocated past torch's CPU allocator is not counted."
    )
    yield "Where the GPU lays its segments breaks ties, which moved the peak of one run in ten by 3.5 %."
    yield from _about_the_recording(run)


def _about_the_recording(run: CpuRun) -> Iterator[str]:
    if not run.has_shapes:
        yield "Sizes of arguments were not recorded, so buffers of reductions are not counted: record with --shapes."
    if len(run.peaks) > 1:
        name = run.header.get("name")
        yield (
            f"The other {len(run.peaks) - 1} processes of the reel are not counted: {name}, which held most, "
            "is the one that is predicted."
        )
    if run.header.get("lost_events"):
        yield f"{run.header['lost_events']:,} events of the recording were lost, so this is too low."
    if run.header.get("complete") is False:
        yield "The process did not close its recording, so the last moments are missing."
