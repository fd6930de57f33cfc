"""Results of ops that are room to work in: not all of their bytes are ever written, so no two calls give the same."""

from __future__ import annotations

# Ops by name, with the places of such results.
WORKSPACES = {"aten::mkldnn_rnn_layer": {3}, "aten::_ctc_loss": {1}, "aten::_ctc_loss.Tensor": {1}}


def is_workspace(name: str, index: int) -> bool:
    return index in WORKSPACES.get(name, ())
