"""All private torch that Python code uses. Another version of torch means: read `native/torch/` and this folder.

Everything here was seen in torch 2.13.0, unless a line says more. A name stands for one thing, with a line that says
what it is; the rest of torchreel imports it from here. `tests/test_layering.py` finds private torch elsewhere.

What takes long to import (Dynamo, Inductor, export, the lite interpreter) is imported inside of functions. What
`import torch` has loaded anyway is bound when this folder's file is imported, so that a use costs what it cost torch.

| file | private parts of |
|---|---|
| `tensors.py` | tensors and storages: identity, use counts, versions, overlap |
| `autograd.py` | autograd: its engine, hooks, versions, forward mode |
| `dispatch.py` | the dispatcher: schemas, op classes, keys and guards on them, modes |
| `functionalization.py` | functionalization |
| `modules.py` | nn.Module, optimizers and schedulers: what they hold, their hooks and code |
| `compiler.py`, `inductor.py` | Dynamo, AOTAutograd and Inductor |
| `deployed.py` | torch.export, AOTInductor packages, pytree, TorchScript |
| `distributed.py` | c10d and RPC |
| `profiler.py` | torch.profiler and torch.autograd.profiler |
| `memory.py` | CUDA's memory history and snapshots |
| `c_functions.py` | C functions and types, for the tables of `guards/` |
"""
