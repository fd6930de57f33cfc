"""C functions of torch.distributed that are known: collectives, which the tape sees, and questions to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchreel._torch.distributed import c10d
from torchreel.guards import tensors
from torchreel.guards.operations import Told

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_MAKERS = frozenset(
    ("AllreduceOptions", "AllreduceCoalescedOptions", "AllgatherOptions", "BroadcastOptions", "ReduceOptions",
     "ReduceScatterOptions", "AllToAllOptions", "BarrierOptions", "GatherOptions", "ScatterOptions")
)  # fmt: skip


# They change a group, or say how far it is.
_NOT_KNOWN = frozenset(
    ("abort", "shutdown", "set_timeout", "split_group", "merge_remote_group", "_get_sequence_number_for_group",
     "_wait_for_pending_works", "_enable_collectives_timing", "is_completed", "is_success", "exception", "source_rank",
     "_source_rank")
)  # fmt: skip


def _of_group(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """A collective, or a question to a group: its ranks, names and options are set when it is made."""
    everything = [*values, *keywords.values()]
    mark = tensors.run_op(call, list(tensors.tensors_in(everything)), {})
    for value in everything:
        if isinstance(value, (list, tuple)):
            call.guard_whole(value)

    def end(result: Any) -> None:
        if isinstance(result, c10d().Work):
            call.native.make(result)
        mark([])

    return end


def _nothing(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return None


def _make(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return call.make


def _functions_of(kind: Any) -> list[tuple[str, Any]]:
    return [
        (name, getattr(one, "__func__", one))
        for name, one in vars(kind).items()
        if callable(one) and not name.startswith("__") and type(getattr(one, "__func__", one)) is _BUILTIN
    ]


_BUILTIN = type(len)


def know(functions: dict[int, Any], classes: dict[Any, Any], opaque: set[type], kept: list[Any]) -> None:
    """Add what is known to the tables of torch's functions."""
    if not torch.distributed.is_available():
        return
    native = c10d()
    for name in _MAKERS:
        if hasattr(native, name):
            classes[getattr(native, name)] = _make
    for name, function in _functions_of(native.ProcessGroup):
        if name in _NOT_KNOWN or name.startswith(("_set_", "_register_")):
            continue
        functions[id(function)] = _of_group
        kept.append(function)
    for name in ("_broadcast_coalesced", "_compute_bucket_assignment_by_size", "_verify_params_across_processes"):
        if hasattr(torch.distributed, name) or hasattr(native, name):
            function = getattr(native, name, None) or getattr(torch.distributed, name)
            functions[id(function)] = _of_group
            kept.append(function)
    # A wait is a part of its collective. The reducer and the logger of DistributedDataParallel keep statistics, and
    # order the buckets of gradients, whose collectives the tape sees.
    for kind in (native.Work, native.Reducer, native.Logger, native.ReduceOp):
        for name, function in _functions_of(kind):
            if name in _NOT_KNOWN:
                continue
            functions[id(function)] = _nothing
            kept.append(function)
    opaque.update({native.ProcessGroup, native.ReduceOp, native.Work, native.Reducer, native.Logger})
    if hasattr(native.ReduceOp, "RedOpType"):
        opaque.add(native.ReduceOp.RedOpType)
