"""Programs of every kind that the tape is held to, through graphs: replayed or left to eager, never wrong."""

from __future__ import annotations

import pytest
import torch

import torchreel
from tests.tape.outcome import called, put_back, start_of
from tests.tape.programs import PROGRAMS

_CALLS = 5

# Its executor optimizes again when other tests of the process have given it other shapes.
DECIDED_BY_TORCHSCRIPT = {"jit_script"}
LEFT_TO_EAGER = {
    "views_and_in_place",
    "generator_made_inside",
    "manual_seed_inside",
    "generator_manual_seed_inside",
    "generator_seeded_first",
    "seeded_and_not_drawn",
    "manual_seed_first",
    "generator_state_put_back",
    "checkpoint_reentrant",
    "checkpoint_not_reentrant",
    "nested_jagged",
    "nested_strided",
    "nested_strided_of_views",
    "quantized",
    "hessian",
    "attention",
    "resized",
    "resized_state",
    "set_storage",
    "data_swapped",
    "tensor_subclass",
    "tensor_subclass_input",
    "compiled_by_aot_eager",
    "compiled_by_inductor",
    "compiled_within",
    "higher_order_cond",
    "numpy_write",
    "deep_copy",
    "storage_filled",
    "thread",
    "thread_pool",
    "thread_pool_from_before",
    "backward_in_thread",
}
"""They write what graphs do not write, draw Python's numbers, start threads or call C code that is not known."""


@pytest.mark.filterwarnings("ignore")  # what torch says of sparse, nested, quantized and scripted tensors
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name: str) -> None:
    # GIVEN a program, and what it gives from its start on some inputs and on others
    torch.manual_seed(0)
    case = PROGRAMS[name]()
    start = start_of(case)
    batches = [case.inputs] if case.others is None else [case.inputs, case.others]
    expected = [called(case, start, case.function, batch) for batch in batches]

    # WHEN it is graphed, and called again and again
    graphed = torchreel.graphed(case.function)
    for call in range(_CALLS):
        place = call % len(batches)

        # THEN each call gives and changes the same
        assert called(case, start, graphed, batches[place]) == expected[place], f"call {call + 1}"
    put_back(case, start)
    if name not in DECIDED_BY_TORCHSCRIPT:
        assert (graphed.replays() == 0) == (name in LEFT_TO_EAGER)


def test_those_left_to_eager_are_programs() -> None:
    assert set(PROGRAMS) >= LEFT_TO_EAGER
