"""Private parts of nn.Module, of optimizers and of schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch.nn.modules import module as _modules
from torch.optim import (
    _adafactor,
    _functional,
    _muon,
    adadelta,
    adagrad,
    adam,
    adamax,
    asgd,
    nadam,
    radam,
    rmsprop,
    sgd,
)
from torch.optim import lr_scheduler as _schedulers
from torch.optim import optimizer as _optimizers

# Modules

# The dicts in which a module holds its parts, as they are called in its __dict__.
PARTS = ("_parameters", "_buffers", "_modules")
# Those of them that hold tensors.
TENSOR_PARTS = ("_parameters", "_buffers")
# What else a module keeps about its parts.
ABOUT_PARTS = ("_is_full_backward_hook", "_non_persistent_buffers_set")

# A module's own parameters, buffers and modules by name. named_parameters() and its like leave out None and repeats.
parameters_of = attrgetter("_parameters")
buffers_of = attrgetter("_buffers")
modules_of = attrgetter("_modules")

# The code of the function through which all calls of modules go.
MODULE_CALL = torch.nn.Module._wrapped_call_impl.__code__

# Hooks that all modules have: dicts by id.
GLOBAL_MODULE_HOOKS = (
    _modules._global_forward_hooks,
    _modules._global_forward_pre_hooks,
    _modules._global_backward_hooks,
    _modules._global_backward_pre_hooks,
)


def parts_and_hooks(space: Mapping[str, Any]) -> tuple[Any, ...]:
    """All that a module holds: first the values of PARTS, in that order, then its hooks. `space` is its __dict__."""
    return (
        *space["_parameters"].values(),
        *space["_buffers"].values(),
        *space["_modules"].values(),
        *space["_forward_hooks"].values(),
        *space["_forward_pre_hooks"].values(),
        *space["_backward_hooks"].values(),
        *space["_backward_pre_hooks"].values(),
    )


# A module's hooks by id: four dicts.
module_hooks = attrgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# Optimizers

# Hooks that all optimizers have, before and after a step: dicts by id.
GLOBAL_STEP_PRE_HOOKS = _optimizers._global_optimizer_pre_hooks
GLOBAL_STEP_POST_HOOKS = _optimizers._global_optimizer_post_hooks

# An optimizer's own hooks by id.
step_pre_hooks = attrgetter("_optimizer_step_pre_hooks")
step_post_hooks = attrgetter("_optimizer_step_post_hooks")

# The functions that take one step of a group, for all of its parameters: the module that has each, and its name there.
# They compute with their numbers in Python's own arithmetic, and with nothing else; sparse_adam also calls math.sqrt.
STEP_FUNCTIONS: list[tuple[Any, str]] = [
    (_adafactor, "adafactor"),
    (_muon, "muon"),
    (adadelta, "adadelta"),
    (adagrad, "adagrad"),
    (adam, "adam"),
    (adamax, "adamax"),
    (asgd, "asgd"),
    (nadam, "nadam"),
    (radam, "radam"),
    (rmsprop, "rmsprop"),
    (sgd, "sgd"),
]
SPARSE_ADAM = (_functional, "sparse_adam")

# What all schedulers of the learning rate call for a step, but for the two that override step().
update_learning_rate = _schedulers.LRScheduler._update_lr
