"""Each C function of torch that is known and is no op: in lockstep with eager, while its answer is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.guards import programs_of_torch
from tests.guards.lockstep import PATTERNS, World, check
from tests.sample import sampled
from torchreel.guards import tensors
from torchreel.guards import torch_functions as known


# What is no matter of guards.
@pytest.mark.parametrize("name", programs_of_torch.PROGRAMS)
def test_program(name: str) -> None:
    check(programs_of_torch.PROGRAMS[name], PATTERNS[:1])


# Questions to tensors

_PLAIN = (bool, int, tuple, torch.Size, torch.dtype, torch.device, torch.layout)


def _answer(tensor: torch.Tensor, name: str, called: bool) -> Any:
    answer = getattr(tensor, name)
    if called:
        answer = answer()
    return answer if type(answer) in _PLAIN else answer is None


def _variant(number: int) -> torch.Tensor:
    """Tensors that answer each question in another way."""
    if number % 3 == 0:
        return torch.ones(2, 3)
    if number % 3 == 1:
        return torch.ones(3, 2, dtype=torch.float64).t().requires_grad_()
    tensor = torch.ones(4, requires_grad=True)
    tensor.grad = torch.ones(4)
    tensor.register_hook(lambda gradient: None)
    tensor.register_post_accumulate_grad_hook(lambda leaf: None)
    return tensor


def _asked_of_argument(name: str, called: bool) -> World:
    return World(lambda x: (x.detach() * 2, _answer(x, name, called)), inputs=lambda turn: (_variant(turn),))


def _asked_of_fresh(name: str, called: bool) -> World:
    return World(lambda x: (x.detach() * 2, _answer(x * 1, name, called)), inputs=lambda turn: (_variant(turn),))


def _asked_of_swapped(name: str, called: bool) -> World:
    held = [_variant(0)]

    def turn(number: int) -> None:
        held[0] = _variant(number)

    return World(lambda x: (x * 2, _answer(held[0], name, called)), lambda: turn(1), lambda: turn(2))


def _asked_of_parameter(name: str, called: bool) -> World:
    """One and the same parameter, which is changed in place."""
    held = torch.nn.Parameter(torch.ones(2, 3))
    hooks: list[Any] = []

    def change() -> None:
        held.data = torch.ones(3, 2).t()[:, 1:]
        held.grad = torch.ones(2, 2)
        hooks.append(held.register_hook(lambda gradient: None))
        hooks.append(held.register_post_accumulate_grad_hook(lambda leaf: None))

    def back() -> None:
        held.grad = None
        held.data = torch.ones(2, 3, dtype=torch.float64)
        held.requires_grad_(False)
        while hooks:
            hooks.pop().remove()

    return World(lambda x: (x * 2, _answer(held, name, called)), change, back)


_QUESTIONS = [(name, False) for name in tensors.QUESTIONS] + [(name, True) for name in tensors.METHOD_QUESTIONS]
_HOLDERS = (_asked_of_argument, _asked_of_fresh, _asked_of_swapped, _asked_of_parameter)


@pytest.mark.parametrize(("name", "called"), sampled(_QUESTIONS, 3))
def test_question_to_a_tensor(name: str, called: bool) -> None:
    for ask in _HOLDERS:
        if ask is _asked_of_argument and name in ("is_leaf", "grad_fn"):
            continue  # the call that asks runs eagerly
        check(lambda ask=ask: ask(name, called), PATTERNS[:1])


@pytest.mark.parametrize("name", ["is_floating_point", "is_complex", "numel", "is_signed", "is_conj", "is_inference"])
def test_question_by_a_function(name: str) -> None:
    held = [torch.ones(2, dtype=torch.float32)]
    function = getattr(torch, name)

    def change(new: torch.Tensor) -> None:
        held[0] = new

    def make() -> World:
        change(torch.ones(2))
        return World(
            lambda x: (x * 2, function(held[0])),
            lambda: change(torch.ones(3, dtype=torch.complex64).conj()),
            lambda: change(torch.ones(2, dtype=torch.int32)),
        )

    check(make, PATTERNS[:2])


# Modes

_C = torch._C
Change = tuple[Callable[[], Any], Callable[[], Any]]


def _by(setter: Callable[[Any], Any], on: Any, off: Any) -> Change:
    return (lambda: setter(on), lambda: setter(off))


MODES: dict[str, tuple[tuple[Any, ...], Change]] = {
    "is_grad_enabled": ((), _by(torch.set_grad_enabled, False, True)),
    "is_autocast_enabled": (("cpu",), _by(lambda on: torch.set_autocast_enabled("cpu", on), True, False)),
    "is_autocast_cpu_enabled": ((), _by(lambda on: torch.set_autocast_enabled("cpu", on), True, False)),
    "_is_any_autocast_enabled": ((), _by(lambda on: torch.set_autocast_enabled("cpu", on), True, False)),
    "is_autocast_cache_enabled": ((), _by(torch.set_autocast_cache_enabled, False, True)),
    "get_autocast_cpu_dtype": ((), _by(lambda one: torch.set_autocast_dtype("cpu", one), torch.half, torch.bfloat16)),
    "get_autocast_gpu_dtype": ((), _by(lambda one: torch.set_autocast_dtype("cuda", one), torch.bfloat16, torch.half)),
    "get_autocast_dtype": (
        ("cuda",), _by(lambda one: torch.set_autocast_dtype("cuda", one), torch.bfloat16, torch.half),
    ),
    "get_default_dtype": ((), _by(torch.set_default_dtype, torch.float64, torch.float32)),
    "get_num_threads": ((), _by(torch.set_num_threads, 2, 1)),
    "is_anomaly_enabled": ((), _by(lambda on: torch.autograd.set_detect_anomaly(on, True), True, False)),
    "is_anomaly_check_nan_enabled": ((), _by(lambda on: torch.autograd.set_detect_anomaly(False, on), False, True)),
    "_get_deterministic_algorithms": ((), _by(torch.use_deterministic_algorithms, True, False)),
    "_get_deterministic_algorithms_warn_only": (
        (), _by(lambda on: _C._set_deterministic_algorithms(on, warn_only=on), True, False),
    ),
    "_get_cudnn_enabled": ((), _by(_C._set_cudnn_enabled, False, True)),
    "_get_mkldnn_enabled": ((), _by(_C._set_mkldnn_enabled, False, True)),
    "_get_flash_sdp_enabled": ((), _by(_C._set_sdp_use_flash, False, True)),
    "_get_math_sdp_enabled": ((), _by(_C._set_sdp_use_math, False, True)),
    "_get_mem_efficient_sdp_enabled": ((), _by(_C._set_sdp_use_mem_efficient, False, True)),
    "_get_cudnn_sdp_enabled": ((), _by(_C._set_sdp_use_cudnn, False, True)),
    "_get_float32_matmul_precision": ((), _by(torch.set_float32_matmul_precision, "high", "highest")),
    "_get_nnpack_enabled": ((), _by(_C._set_nnpack_enabled, False, True)),
    "_get_cudnn_benchmark": ((), _by(_C._set_cudnn_benchmark, True, False)),
    "_get_cudnn_deterministic": ((), _by(_C._set_cudnn_deterministic, True, False)),
    "_get_cudnn_allow_tf32": ((), _by(_C._set_cudnn_allow_tf32, False, True)),
    "_get_cublas_allow_tf32": ((), _by(_C._set_cublas_allow_tf32, True, False)),
    "_is_multithreading_enabled": ((), _by(_C._set_multithreading_enabled, False, True)),
    "_is_view_replay_enabled": ((), _by(_C._set_view_replay_enabled, True, False)),
}  # fmt: skip
# They answer the same for as long as a process runs, or what a mode in the key of a call says, or change what is as it
# was when the call ends; or they do nothing that shows.
CONSTANT = frozenset(
    """is_inference_mode_enabled _get_tracing_state _is_tracing _len_torch_function_stack _is_torch_function_enabled
    _is_torch_function_mode_enabled _is_autocast_available _is_flash_attention_available autocast_increment_nesting
    autocast_decrement_nesting set_autocast_enabled set_autocast_cache_enabled clear_autocast_cache _set_grad_enabled
    _are_functorch_transforms_active _len_torch_dispatch_stack _stash_obj_in_tls _remove_obj_from_tls
    _log_api_usage_once _has_torch_function _has_torch_function_unary _has_torch_function_variadic
    _accelerator_getAccelerator _get_accelerator _get_dispatch_mode unwrap_if_dead set_eval_frame maybe_current_level
    _get_privateuse1_backend_name _cuda_getDeviceCount _dispatch_tls_is_dispatch_key_included _enter_dual_level
    _exit_dual_level _is_fwd_grad_enabled _set_fwd_grad_enabled _unsafe_set_version_counter
    _saved_tensors_hooks_disable _saved_tensors_hooks_enable _saved_tensors_hooks_is_enabled
    _saved_tensors_hooks_get_disabled_error_message _saved_tensors_hooks_set_tracing
    _any_output_is_alias_to_input_or_output""".split()  # noqa: SIM905
)


def _functions_of_modes() -> dict[str, Any]:
    found = {}
    for one in known._kept:
        rule = known.FUNCTIONS.get(id(one))
        if rule is known._nothing or getattr(rule, "__qualname__", "").startswith(("_asked_again", "_mode")):
            found[one.__name__] = one
    return found


_OF_SCHEMAS = frozenset(vars(torch._C.FunctionSchema))
_MODES_OF_C = frozenset(("__init__", "__new__", "__enter__", "__exit__", "_pybind11_conduit_v1_"))


def test_each_function_of_a_mode_has_a_case() -> None:
    names = {name for name in _functions_of_modes() if not name.startswith("__")} - _MODES_OF_C - _OF_SCHEMAS
    assert not names - set(MODES) - CONSTANT


@pytest.mark.parametrize("name", MODES)
def test_mode(name: str) -> None:
    function = _functions_of_modes()[name]
    values, (on, off) = MODES[name]

    def make() -> World:
        off()
        return World(
            lambda x: (x * 2, str(function(*values)) if name.endswith("dtype") else function(*values)), on, off
        )

    threads = torch.get_num_threads()
    try:
        check(make, PATTERNS[:2])
    finally:
        off()
        torch.set_num_threads(threads)


def test_modes_of_python_around_and_inside() -> None:
    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad(), torch.autocast("cpu", enabled=torch.is_grad_enabled()):
            inside = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
            return x * 2, inside, torch.is_inference_mode_enabled()

    stack = contextlib.ExitStack()

    def change() -> None:
        stack.enter_context(torch.inference_mode())

    check(lambda: World(fn, change, stack.close), PATTERNS)


def test_requires_grad_() -> None:
    def make() -> World:
        weight = torch.ones(3)

        def fn(x: torch.Tensor) -> torch.Tensor:
            return (x * 1).requires_grad_() * weight.requires_grad_(False)

        def change() -> None:
            weight.requires_grad_(True)

        return World(fn, change, change, lambda: weight.requires_grad)

    check(make)


def test_dtype_of_autocast_is_left_changed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        return x * 2

    def back() -> None:
        torch.set_autocast_dtype("cuda", torch.float16)

    try:
        check(lambda: World(fn, back, back, lambda: str(torch.get_autocast_dtype("cuda"))))
    finally:
        back()
