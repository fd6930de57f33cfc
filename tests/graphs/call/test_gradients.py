"""Backwards outside of the graphed function: the same bits, hooks, versions and errors as without a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from tests.guards.lockstep import told

PROGRAMS: dict[str, Callable[[Any], list[Any]]] = {}


def program(run: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    PROGRAMS[run.__name__] = run
    return run


@program
def batched_gradients(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.randn(4, 4))
    f = wrap(lambda x: (x @ w).tanh())
    for _i in range(4):  # segfault in call 3 (also torch.autograd.functional.jacobian(vectorize=True), and
        x = torch.randn(4, requires_grad=True)  # y.backward(torch._efficientzerotensor(4)))
        r.append(round(torch.autograd.grad(f(x), x, torch.eye(4), is_grads_batched=True)[0].sum().item(), 4))
    return r


@program
def in_place_on_an_input_with_a_history(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    b = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
    v = nn.Parameter(torch.randn(4, 4))
    f = wrap(b)
    for _i in range(5):
        y = f(torch.randn(2, 4) @ v).sum()
        y.backward()
        r.append(round(y.item(), 4))
    return r


@program
def loss_and_logits_with_batch_norm(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    def fn(x):
        out = m(x)
        return out.pow(2).mean(), out  # (loss, logits), as many models return them

    f = wrap(fn)
    for _i in range(5):
        loss, _out = f(torch.randn(5, 4))
        loss.backward()
        r.append(round(m[0].weight.grad.sum().item(), 4))
    return r


@program
def batch_norm_called_twice(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    f = wrap(m)
    for _i in range(5):
        a, b = f(torch.randn(5, 4)), f(torch.randn(5, 4))  # siamese, with batch norm
        (a * b).pow(2).sum().backward()
        r.append(round(m[0].weight.grad.sum().item(), 4))
    return r


@program
def data_written_without_a_version(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.randn(4))

    def update():
        w.data.mul_(0.9)  # does not bump the version of w in eager

    f = wrap(update)
    for _i in range(4):
        x = torch.randn(4, requires_grad=True)
        y = (x * w).sum()
        f()
        y.backward()
        r.append(round(x.grad.sum().item(), 4))
    return r


@program
def pending_backward_of_eager(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    m = nn.Linear(4, 4)

    def fn(x):
        m.zero_grad()
        loss = m(x).pow(2).sum()
        loss.backward()
        return loss.detach()  # writes no parameter

    f = wrap(fn)
    for _i in range(4):
        x = torch.randn(2, 4, requires_grad=True)
        y = m(x).sum()
        f(torch.randn(2, 4))
        y.backward()  # fails at the verified call
        r.append(round(x.grad.sum().item(), 4))
    return r


@program
def one_derivative_of_two_tensors(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    a, b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
    f = wrap(lambda x: ((a + b) * x).sum())
    for i in range(6):  # two tensors with one derivative: their .grad is one memory
        if i % 3 == 0:
            a.grad = b.grad = None
        f(torch.ones(3)).backward()
        r.append((a.grad[0].item(), b.grad[0].item()))
    return r


@program
def hooks_of_an_output_that_another_needs(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))

    def fn(x):
        h = x @ w
        return h, (h * 3).sum()

    f = wrap(fn)
    for _i in range(5):
        w.grad = None
        h, y = f(torch.ones(1, 2))
        h.retain_grad()
        h.register_hook(lambda g: g * 10)
        (y + h.sum()).backward()
        r.append((h.grad[0, 0].item(), w.grad[0, 0].item()))
    return r


@program
def heads_differentiated_one_after_the_other(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    u, v = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    f = wrap(lambda x: ((x @ u).tanh().sum(), (x @ v).tanh().sum()))
    for _i in range(5):  # two heads that share nothing, differentiated one after the other
        a, b = f(torch.ones(1, 2))
        a.backward()
        b.backward()
        r.append(v.grad[0, 0].item())
    return r


@program
def view_of_an_output_written(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))

    def fn(x):
        h = x @ w
        return h, h.view(-1)

    f = wrap(fn)
    for _i in range(5):  # h changes with its view v: so does its gradient
        w.grad = None
        h, v = f(torch.ones(1, 2))
        v.mul_(10)
        h.sum().backward()
        r.append(w.grad[0, 0].item())
    return r


@program
def detached_output_written(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))

    def fn(x):
        h = x @ w
        return h, h.detach()

    f = wrap(fn)
    for _i in range(5):  # eager: RuntimeError, h was modified by an inplace operation
        w.grad = None
        h, d = f(torch.ones(1, 2))
        y = h.pow(2).sum()
        d.mul_(10)
        try:
            y.backward()
            r.append(w.grad[0, 0].item())
        except RuntimeError:
            r.append("error")
    return r


@program
def views_of_one_tensor_written(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))
    f = wrap(lambda x: (x @ w).chunk(2, 1))
    for _i in range(5):  # eager: RuntimeError, a view of a function that returns multiple views
        a, _b = f(torch.ones(1, 2))
        try:
            a.mul_(10)
            r.append("ok")
        except RuntimeError:
            r.append("error")
    return r


@program
def gradient_of_an_argument(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))

    def fn(x):
        y = (x @ w).sum()
        y.backward()
        return y.detach()

    f = wrap(fn)
    for _i in range(5):  # the verified call adds to x.grad twice
        w.grad = None
        x = torch.ones(1, 2, requires_grad=True)
        f(x)
        r.append(x.grad[0, 0].item())
    return r


@program
def argument_that_retains_its_gradient(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))
    f = wrap(lambda x: (x @ w).sum())
    for _i in range(5):  # the verified call leaves gradients in an input that retains them
        x = torch.ones(1, 2, requires_grad=True) * 1
        x.retain_grad()
        y = f(x)
        r.append(x.grad)
        y.backward()
        r.append(x.grad[0, 0].item())
    return r


@program
def autocast_around_two_calls(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.randn(6, 6))
    f = wrap(lambda x: (x @ w).tanh())
    xs = torch.randn(12, 3, 6)
    for i in range(6):  # eager casts w once and adds the two derivatives in bfloat16
        w.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            y = f(xs[2 * i]) + f(xs[2 * i + 1])
        y.float().sum().backward()
        r.append(w.grad.double().sum().item())
    return r


@program
def autocast_around_the_backward(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.randn(6, 6))
    f = wrap(lambda x: (x @ w).tanh())
    x = torch.randn(3, 6)
    for _i in range(5):  # the mode of the backward is not that of the forward
        w.grad = None
        y = f(x).sum()
        with torch.autocast("cpu", torch.bfloat16):
            y.backward()
        r.append(w.grad.double().sum().item())
    return r


@program
def mode_around_the_backward(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    from torch.utils.flop_counter import FlopCounterMode

    w = nn.Parameter(torch.randn(6, 6))
    f = wrap(lambda x: (x @ w).tanh())
    x = torch.randn(3, 6)
    for _i in range(5):  # a TorchDispatchMode around the backward sees none of its ops
        y = f(x).sum()
        with FlopCounterMode(display=False) as flops:
            y.backward()
        r.append(flops.get_total_flops())
    return r


@program
def input_written_without_a_version(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2, 2))
    f = wrap(lambda x: (x @ w).sum())
    for _i in range(5):  # written without a version: eager reads x itself, a replay its copy
        w.grad = None
        x = torch.ones(1, 2)
        y = f(x)
        x.numpy()[:] = 7
        y.backward()
        r.append(w.grad[0, 0].item())
    return r


@program
def parameter_data_written_before_a_second_derivative(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    u, v = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    f = wrap(lambda x: ((x @ u) @ v).sum())
    for _i in range(5):  # recomputed with the new u, though eager has kept x @ u
        y = f(torch.ones(1, 2))
        u.data.mul_(2)
        (g,) = torch.autograd.grad(y, v, create_graph=True)
        r.append(g[0, 0].item())
        u.data.div_(2)
    return r


@program
def argument_detached_in_place(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []

    def fn(x):
        x.detach_()
        return x * 2

    f = wrap(fn)
    v = nn.Parameter(torch.ones(2))
    for _i in range(5):
        h = v * 2
        f(h)
        r.append(h.requires_grad)
    return r


@program
def hooks_of_saved_tensors(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    w = nn.Parameter(torch.ones(2))
    seen = []

    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (seen.append(1), t)[1]):
            return (x * w).sum()

    f = wrap(fn)
    for _i in range(5):
        f(torch.ones(2)).backward()
        r.append(len(seen))  # recording runs the backward, and its hooks, for nobody
    return r


@program
def second_derivatives(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    m = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    f = wrap(m)
    for _i in range(5):  # last bits: values of y and of its derivative flow through two graphs instead of one
        m.zero_grad()
        x = torch.randn(3, 6, requires_grad=True)
        y = f(x)
        (g,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        (g.pow(2).sum() + y.sum()).backward()
        r.append(m[0].weight.grad.double().sum().item())
    return r


@program
def frozen_before_the_backward(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    m = nn.Linear(4, 4)
    f = wrap(m)
    for i in range(5):  # frozen, or eval(), between forward and a backward with other strides
        m.requires_grad_(True)
        m.zero_grad()
        y = f(torch.ones(2, 4))
        m.requires_grad_(False)
        y.backward(torch.ones(2, 4) if i < 4 else torch.ones(4, 2).t())
        r.append("ok")
    return r


@program
def view_of_an_input_written(wrap: Any) -> list[Any]:
    torch.manual_seed(0)
    r = []
    f = wrap(lambda x: x.view(-1))
    for _i in range(5):  # the view has a version of its own: a write to it is not seen by autograd
        x = torch.ones(2, 2)
        w = torch.ones(2, 2, requires_grad=True)
        v = f(x)
        y = (x * w).sum()
        v.mul_(10)
        try:
            y.backward()
            r.append(w.grad[0, 0].item())
        except RuntimeError:
            r.append("error")
    return r


@program
def weight_used_twice_and_elsewhere(wrap: Any) -> list[Any]:
    w = torch.randn(16, 16, requires_grad=True)
    r = []
    f = wrap(lambda x: torch.tanh(torch.tanh(x @ w) @ w))
    for _i in range(8):
        w.grad = None
        a, b = f(torch.randn(4, 16)), f(torch.randn(4, 16))
        (a.sum() + (b * a).sum() + (torch.randn(3, 16) @ w).sum()).backward()
        r.append(w.grad.clone())
    return r


@program
def residual_input_used_elsewhere(wrap: Any) -> list[Any]:
    w, v = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    r = []
    f = wrap(lambda x: x + torch.tanh(x @ w) * x)
    for _i in range(8):
        w.grad = v.grad = None
        h = torch.randn(4, 16) @ v
        h.retain_grad()
        (f(h).sin() + h * 3.3 + f(h * 1.1)).pow(2).sum().backward()
        r += [w.grad.clone(), v.grad.clone(), h.grad.clone()]
    return r


@program
def one_gradient_of_two_parameters(wrap: Any) -> list[Any]:
    w, v = (torch.randn(16, requires_grad=True) for _ in range(2))
    r = []
    f = wrap(lambda x: torch.tanh(x * w) * v + v)
    for _i in range(8):
        w.grad = v.grad = torch.randn(16)
        f(torch.randn(4, 16)).pow(2).sum().backward()
        r.append(w.grad.clone())
    return r


@program
def arguments_on_one_memory(wrap: Any) -> list[Any]:
    r = []
    f = wrap(lambda a, b: torch.tanh(a * b) * a)
    for _i in range(6):
        a = torch.randn(8, requires_grad=True)
        b = a.detach().requires_grad_()
        f(a, b).pow(2).sum().backward()
        r += [a.grad.clone(), b.grad.clone()]
    return r


@program
def own_generator_and_another_backward(wrap: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    w = torch.ones(2, requires_grad=True)
    r = []
    f = wrap(lambda x: x * w * torch.rand(2, generator=generator))
    for i in range(5):
        y = f(torch.ones(2))
        (g,) = torch.autograd.grad(y.sum(), w, create_graph=i % 2 == 1)
        r.append(g.detach().clone())
    return r


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    def run(wrap: Any) -> Any:
        torch.manual_seed(0)
        return told(PROGRAMS[name](wrap))

    expected = run(lambda function: function)
    assert run(torchreel.graphed) == expected
