"""Training: optimizers and what changes them, accumulation, gradients that are there or not, functions of autograd."""

from __future__ import annotations

import copy
import itertools
import threading
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint

from tests.graphs.guards.kinds.registry import Box, attribute, backward, enter, item, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _batch(number: int) -> Given:
    return Given(sample(number, 2, 3))


class Trainer:
    """A model, its optimizer, and a step of both."""

    def __init__(self, kind: Any = torch.optim.SGD, **settings: Any) -> None:
        self.model = small()
        self.optimizer = kind(self.model.parameters(), **({"lr": 0.1} | settings))

    def step(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def case(self, *changes: Change, function: Any = None, **more: Any) -> Case:
        observe = more.pop("observe", None)
        return Case(
            function or self.step,
            list(changes),
            given=more.pop("given", _batch),
            observe=lambda: (self.model, self.optimizer, observe() if observe else None),
            **more,
        )


_OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda: Trainer(),
    "SGD with momentum": lambda: Trainer(momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda: Trainer(torch.optim.Adam),
    "AdamW with amsgrad": lambda: Trainer(torch.optim.AdamW, amsgrad=True),
    "Adagrad": lambda: Trainer(torch.optim.Adagrad),
    "RMSprop": lambda: Trainer(torch.optim.RMSprop, momentum=0.9),
    "NAdam": lambda: Trainer(torch.optim.NAdam),
    "RAdam": lambda: Trainer(torch.optim.RAdam),
    "ASGD": lambda: Trainer(torch.optim.ASGD),
    "Rprop": lambda: Trainer(torch.optim.Rprop),
}


def _of_an_optimizer(make: Any) -> Case:
    trainer = make()
    group = trainer.optimizer.param_groups[0]
    saved: list[Any] = []
    load = Change(
        lambda: saved.append(copy.deepcopy(trainer.optimizer.state_dict())),
        lambda: trainer.optimizer.load_state_dict(saved.pop()),
        idle=True,
    )
    return trainer.case(item(group, "lr", 0.01), load)  # type: ignore[no-any-return]


for _name, _make in _OPTIMIZERS.items():
    enter(f"step of {_name}", lambda make=_make: _of_an_optimizer(make))


_SCHEDULERS: dict[str, Any] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2, 0.5),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 7),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=200),
}


def _scheduled(make: Any, inside: bool) -> Case:
    trainer = Trainer(momentum=0.9)
    scheduler = make(trainer.optimizer)

    def function(x: Tensor) -> Tensor:
        loss = trainer.step(x)
        if inside:
            scheduler.step()
        return loss

    use = lambda out: None if inside else scheduler.step()  # noqa: E731
    return trainer.case(function=function, use=use, observe=lambda: scheduler.get_last_lr())


for _name, _make in _SCHEDULERS.items():
    enter(f"{_name} stepped outside", lambda make=_make: _scheduled(make, False))
    enter(f"{_name} stepped inside", lambda make=_make: _scheduled(make, True))


@kind
def setting_of_a_group_changed() -> Any:
    trainer = Trainer(torch.optim.AdamW)
    group = trainer.optimizer.param_groups[0]
    return trainer.case(
        item(group, "weight_decay", 0.5), item(group, "betas", (0.5, 0.6)), item(group, "maximize", True)
    )


@kind
def learning_rate_that_is_a_tensor() -> Any:
    trainer = Trainer(torch.optim.Adam, lr=torch.tensor(0.1), foreach=False)
    rate: Any = trainer.optimizer.param_groups[0]["lr"]
    return trainer.case(Change(lambda: rate.fill_(0.01), lambda: rate.fill_(0.1)))


@kind
def group_added_later() -> Any:
    trainer, more = Trainer(), nn.Parameter(torch.ones(1))

    def step(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad()
        loss = (trainer.model(x) * more).pow(2).mean()
        loss.backward()
        trainer.optimizer.step()
        return loss.detach()

    change = Change(lambda: trainer.optimizer.add_param_group({"params": [more], "lr": 0.5}))
    return trainer.case(change, function=step, observe=lambda: more)


@kind
def parameter_taken_from_a_group() -> Any:
    trainer = Trainer()
    members: list[Any] = trainer.optimizer.param_groups[0]["params"]
    last = members[-1]
    return trainer.case(Change(members.pop, lambda: members.append(last)))


@kind
def state_of_an_optimizer_loaded() -> Any:
    trainer = Trainer(torch.optim.Adam)
    saved: list[Any] = []
    save = Change(
        lambda: saved.append(copy.deepcopy(trainer.optimizer.state_dict())),
        lambda: trainer.optimizer.load_state_dict(saved.pop()),
        idle=True,
    )
    return trainer.case(save)


@kind
def state_of_an_optimizer_cleared() -> Any:
    trainer = Trainer(torch.optim.Adam)
    return trainer.case(Change(lambda: trainer.optimizer.state.clear()))


@kind
def optimizer_replaced() -> Any:
    trainer = Trainer()
    return trainer.case(attribute(trainer, "optimizer", torch.optim.SGD(trainer.model.parameters(), lr=0.01)))


@kind
def hook_before_a_step() -> Any:
    trainer, seen = Trainer(), []  # type: ignore[var-annotated]
    handles: list[Any] = []
    register = trainer.optimizer.register_step_pre_hook
    hook = lambda optimizer, args, kwargs: seen.append(len(seen))  # noqa: E731
    change = Change(lambda: handles.append(register(hook)), lambda: handles.pop().remove())
    return trainer.case(change, observe=lambda: seen)


@kind
def hook_after_a_step() -> Any:
    trainer = Trainer()

    def clamp(optimizer: Any, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            for p in trainer.model.parameters():
                p.clamp_(-0.1, 0.1)

    handles: list[Any] = []
    register = trainer.optimizer.register_step_post_hook
    return trainer.case(Change(lambda: handles.append(register(clamp)), lambda: handles.pop().remove()))


@kind
def hook_of_all_optimizers() -> Any:
    trainer, seen = Trainer(), []  # type: ignore[var-annotated]
    handles: list[Any] = []
    register = register_optimizer_step_post_hook
    hook = lambda optimizer, args, kwargs: seen.append(len(seen))  # noqa: E731
    change = Change(lambda: handles.append(register(hook)), lambda: handles.pop().remove())
    return trainer.case(change, observe=lambda: seen)


@kind
def step_with_a_closure() -> Any:
    trainer = Trainer(torch.optim.LBFGS, max_iter=2)

    def function(x: Tensor) -> Tensor:
        def closure() -> Tensor:
            trainer.optimizer.zero_grad()
            loss = trainer.model(x).pow(2).mean()
            loss.backward()
            return loss

        return trainer.optimizer.step(closure).detach()  # type: ignore[no-any-return]

    return trainer.case(function=function)


@kind
def optimizer_of_ones_own() -> Any:
    class Sign(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})
            self.steps = 0

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.steps += 1
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad.sign(), alpha=group["lr"] / self.steps)

    trainer = Trainer(Sign)
    return trainer.case(observe=lambda: trainer.optimizer.steps)


def _accumulated(when: Any, observe: Any, given: Any = _batch) -> Case:
    trainer = Trainer(momentum=0.9)

    def function(x: Tensor, *more: Any) -> Tensor:
        loss = trainer.model(x).pow(2).mean() / 3
        loss.backward()
        if when(*more):
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
        return loss.detach()

    return trainer.case(function=function, given=given, observe=observe)


@kind
def accumulation_counted_in_python() -> Any:
    count = itertools.count(1)
    return _accumulated(lambda: next(count) % 3 == 0, lambda: None)


@kind
def accumulation_counted_in_an_object() -> Any:
    box = Box(step=0)

    def when() -> bool:
        box.step += 1
        return box.step % 3 == 0

    return _accumulated(when, lambda: box)


@kind
def accumulation_told_by_an_argument() -> Any:
    return _accumulated(lambda last: last, None, lambda n: Given(sample(n, 2, 3), n % 3 == 2))


@kind
def accumulation_counted_in_a_tensor() -> Any:
    steps = torch.zeros((), dtype=torch.int64)

    def when() -> bool:
        steps.add_(1)
        return bool(steps % 3 == 0)

    return _accumulated(when, lambda: steps)


@kind
def accumulation_with_a_step_outside() -> Any:
    trainer, box = Trainer(torch.optim.Adam), Box(calls=0)

    def function(x: Tensor) -> Tensor:
        loss = trainer.model(x).pow(2).mean() / 2
        loss.backward()
        return loss.detach()

    def use(out: Any) -> None:
        box.calls += 1
        if box.calls % 2 == 0:
            trainer.optimizer.step()
            trainer.optimizer.zero_grad(set_to_none=box.calls % 4 == 0)

    return trainer.case(function=function, use=use)


@kind
def accumulation_of_backwards_outside() -> Any:
    trainer, box = Trainer(), Box(calls=0)

    def use(out: Tensor) -> None:
        out.pow(2).mean().backward()
        box.calls += 1
        if box.calls % 3 == 0:
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()

    return trainer.case(function=trainer.model, use=use)


@kind
def gradients_that_are_there_at_times() -> Any:
    trainer = Trainer()

    def function(x: Tensor) -> Tensor:
        loss = trainer.model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    zeros = Change(lambda: trainer.model.zero_grad(set_to_none=False), lambda: trainer.model.zero_grad())
    part = Change(lambda: setattr(trainer.model[0].weight, "grad", None))  # type: ignore[index]
    return trainer.case(zeros, part, function=function)


@kind
def gradients_set_to_none_or_to_zero() -> Any:
    trainer, box = Trainer(momentum=0.5), Box(none=True)

    def function(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad(set_to_none=box.none)
        if x.sum() > 0:
            trainer.model(x).pow(2).mean().backward()
        trainer.optimizer.step()
        return x + 1

    return trainer.case(attribute(box, "none", False), function=function)


@kind
def gradient_held_by_the_caller() -> Any:
    """Whoever holds a gradient of an earlier call sees it change, or not, as in eager."""
    trainer, kept = Trainer(), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        loss = trainer.model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    use = lambda out: kept.append(trainer.model[0].weight.grad)  # type: ignore[index] # noqa: E731
    return trainer.case(Change(trainer.model.zero_grad), function=function, use=use, observe=lambda: kept)


@kind
def parameter_that_takes_no_part() -> Any:
    trainer, box = Trainer(), Box(whole=True)

    def function(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad()
        y = trainer.model(x) if box.whole else trainer.model[0](x)  # type: ignore[index]
        y.pow(2).mean().backward()
        trainer.optimizer.step()
        return y.detach()

    return trainer.case(attribute(box, "whole", False), function=function)


@kind
def frozen_within_a_step() -> Any:
    trainer = Trainer(momentum=0.9)
    first: Any = trainer.model[0]  # type: ignore[index]
    return trainer.case(Change(lambda: first.requires_grad_(False), lambda: first.requires_grad_(True)))


@kind
def clipping_with_a_norm_that_is_read() -> Any:
    trainer, box, norms = Trainer(), Box(most=0.5), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad()
        trainer.model(x).pow(2).sum().backward()
        norms.append(nn.utils.clip_grad_norm_(trainer.model.parameters(), box.most))
        trainer.optimizer.step()
        return x + 1

    return trainer.case(attribute(box, "most", 0.1), function=function, observe=lambda: norms)


@kind
def gradient_scaler() -> Any:
    trainer = Trainer()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    def function(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad()
        loss = trainer.model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(trainer.optimizer)
        scaler.update()
        return loss.detach()

    return trainer.case(function=function, observe=scaler.state_dict)


@kind
def moving_average_of_a_model() -> Any:
    trainer = Trainer()
    averaged = torch.optim.swa_utils.AveragedModel(trainer.model)

    def function(x: Tensor) -> Tensor:
        loss = trainer.step(x)
        averaged.update_parameters(trainer.model)
        return loss

    return trainer.case(function=function, observe=lambda: averaged)


@kind
def moving_average_by_hand() -> Any:
    trainer, box = Trainer(), Box(decay=0.9)
    shadow = [p.detach().clone() for p in trainer.model.parameters()]

    def function(x: Tensor) -> Tensor:
        loss = trainer.step(x)
        with torch.no_grad():
            for old, new in zip(shadow, trainer.model.parameters(), strict=True):
                old.lerp_(new, 1 - box.decay)
        return loss

    return trainer.case(attribute(box, "decay", 0.5), function=function, observe=lambda: shadow)


@kind
def best_loss_that_is_kept() -> Any:
    trainer, box = Trainer(), Box(best=float("inf"), calls=0)

    def function(x: Tensor) -> Tensor:
        loss = trainer.step(x)
        if loss.item() < box.best:
            box.best = loss.item()
        return loss

    return trainer.case(function=function, observe=lambda: box)


@kind
def history_of_losses() -> Any:
    trainer, history = Trainer(), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        loss = trainer.step(x)
        history.append(loss)
        return loss

    return trainer.case(function=function, observe=lambda: history)


@kind
def loss_returned_with_its_graph() -> Any:
    trainer = Trainer()

    def function(x: Tensor) -> Tensor:
        trainer.optimizer.zero_grad()
        loss = trainer.model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        return loss

    return trainer.case(function=function, use=lambda out: out.requires_grad)


@kind
def gradient_of_gradients() -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad((w * x).pow(3).sum(), w, create_graph=True)
        return slope.pow(2).sum()

    return Case(function, use=backward, observe=lambda: w)


@kind
def backward_outside_that_makes_a_graph() -> Any:
    w = torch.ones(3, requires_grad=True)

    def use(out: Tensor) -> Any:
        (slope,) = torch.autograd.grad(out.sum(), w, create_graph=True)
        slope.pow(2).sum().backward()

    return Case(lambda x: (w * x).pow(3), use=use, observe=lambda: w)


@kind
def backward_outside_with_two_outputs_of_which_one_is_used() -> Any:
    w, box = torch.ones(3, requires_grad=True), Box(first=True)

    def use(out: Any) -> None:
        out[0 if box.first else 1].sum().backward()

    change = attribute(box, "first", False)
    return Case(lambda x: (w * x, w.sin() + x), [change], use=use, observe=lambda: w)


@kind
def backward_outside_twice() -> Any:
    w = torch.ones(3, requires_grad=True)

    def use(out: Tensor) -> None:
        out.sum().backward(retain_graph=True)
        out.pow(2).sum().backward()

    return Case(lambda x: (w * x).sin(), use=use, observe=lambda: w)


@kind
def backward_outside_that_never_comes() -> Any:
    w = torch.ones(3, requires_grad=True)
    return Case(lambda x: (w * x).sin(), use=lambda out: None, observe=lambda: w)


@kind
def backwards_of_several_calls_at_once() -> Any:
    w, waiting = torch.ones(3, requires_grad=True), []  # type: ignore[var-annotated]

    def use(out: Tensor) -> None:
        waiting.append(out)
        if len(waiting) == 3:
            for one in reversed(waiting):
                one.sum().backward()
            waiting.clear()

    return Case(lambda x: (w * x).sin(), use=use, observe=lambda: w)


@kind
def function_of_autograd_whose_backward_reads_state() -> Any:
    box = Box(k=1.0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * box.k

    w = torch.ones(3, requires_grad=True)
    return Case(lambda x: Scaled.apply(w * x), [attribute(box, "k", 5.0)], use=backward, observe=lambda: w)


@kind
def function_of_autograd_whose_backward_reads_state_inside() -> Any:
    box = Box(k=1.0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * box.k

    w = torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        w.grad = None
        Scaled.apply(w * x).sum().backward()
        return x + 1

    return Case(function, [attribute(box, "k", 5.0)], observe=lambda: w)


@kind
def function_of_autograd_whose_backward_stores() -> Any:
    seen: list[Any] = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            seen.append(gradient.clone())
            return gradient

    w = torch.ones(3, requires_grad=True)
    return Case(lambda x: Noted.apply(w * x), use=backward, observe=lambda: (w, seen))


@kind
def function_of_autograd_whose_backward_counts_inside() -> Any:
    box = Box(n=0)

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            box.n += 1
            (x,) = ctx.saved_tensors
            return gradient * x * box.n

    w = torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        w.grad = None
        Counted.apply(w * x).sum().backward()
        return x + 1

    return Case(function, observe=lambda: (w, box))


@kind
def function_of_autograd_that_keeps_a_number() -> Any:
    box = Box(k=2.0)

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
            ctx.k = k
            ctx.mark_non_differentiable()
            return x * k

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return gradient * ctx.k, None

    w = torch.ones(3, requires_grad=True)
    return Case(lambda x: Kept.apply(w * x, box.k), [attribute(box, "k", 5.0)], use=backward, observe=lambda: w)


@kind
def checkpoint_with_dropout() -> Any:
    layer = nn.Linear(3, 3)

    def function(x: Tensor) -> Tensor:
        return checkpoint(lambda y: functional.dropout(layer(y).relu(), 0.5), x, use_reentrant=False)  # type: ignore[no-any-return]

    return Case(function, given=_batch, use=backward, observe=lambda: layer)


@kind
def checkpoint_with_dropout_inside() -> Any:
    layer = nn.Linear(3, 3)

    def function(x: Tensor) -> Tensor:
        layer.zero_grad()
        y = checkpoint(lambda y: functional.dropout(layer(y).relu(), 0.5), x, use_reentrant=False)
        y.sum().backward()
        return y.detach()  # type: ignore[no-any-return]

    return Case(function, given=_batch, observe=lambda: layer)


@kind
def checkpoint_that_reads_state_again() -> Any:
    layer, box = nn.Linear(3, 3), Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        return checkpoint(lambda y: layer(y).sin() * box.k, x, use_reentrant=False)  # type: ignore[no-any-return]

    return Case(function, [attribute(box, "k", 5.0)], given=_batch, use=backward, observe=lambda: layer)


@kind
def dual_number_as_argument() -> Any:
    box = Box(on=False)

    def call(function: Any, given: Given) -> Any:
        with forward_ad.dual_level():
            x = forward_ad.make_dual(given.args[0], torch.ones(3)) if box.on else given.args[0]
            return tuple(forward_ad.unpack_dual(function(x)))

    return Case(lambda x: x.exp() * 2, [attribute(box, "on", True)], call=call)


@kind
def dual_number_as_argument_from_the_start() -> Any:
    def call(function: Any, given: Given) -> Any:
        with forward_ad.dual_level():
            return tuple(forward_ad.unpack_dual(function(forward_ad.make_dual(given.args[0], torch.ones(3)))))

    return Case(lambda x: x.exp() * 2, call=call)


@kind
def dual_number_in_a_tensor_of_state() -> Any:
    box = Box(w=torch.ones(3), on=False)

    def call(function: Any, given: Given) -> Any:
        with forward_ad.dual_level():
            box.w = forward_ad.make_dual(torch.ones(3), torch.full((3,), 2.0)) if box.on else torch.ones(3)
            return tuple(forward_ad.unpack_dual(function(*given.args)))

    return Case(lambda x: x * box.w, [attribute(box, "on", True)], call=call)


def _transformed(transform: Any) -> Case:
    """A transform of torch.func around the call at times."""
    box, w = Box(on=False), torch.ones(3)

    def call(function: Any, given: Given) -> Any:
        return transform(function, *given.args) if box.on else function(*given.args)

    change = attribute(box, "on", True)
    return Case(lambda x: (x * w).exp().sum(), [Change(change.do, change.undo, idle=True)], call=call)


_TRANSFORMS: dict[str, Any] = {
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.ones(3),)),
    "grad": lambda function, x: torch.func.grad(function)(x),
    "vmap": lambda function, x: torch.func.vmap(function)(x.view(3, 1).expand(3, 3)),
    "vjp": lambda function, x: torch.func.vjp(function, x)[1](torch.ones(())),
    "hessian": lambda function, x: torch.func.hessian(function)(x),
    "functionalize": lambda function, x: torch.func.functionalize(function)(x),
}
for _name, _transform in _TRANSFORMS.items():
    enter(f"{_name} around the call", lambda transform=_transform: _transformed(transform))


@kind
def called_from_another_thread_at_times() -> Any:
    box, w = Box(k=1.0), torch.ones(3)

    def call(function: Any, given: Given) -> Any:
        if box.k == 1.0:
            return function(*given.args)
        found: list[Any] = []
        worker = threading.Thread(target=lambda: found.append(function(*given.args)))
        worker.start()
        worker.join()
        return found[0]

    return Case(lambda x: x * w * box.k, [attribute(box, "k", 5.0)], call=call)


@kind
def forward_mode_by_jvp_inside() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Any:
        return torch.func.jvp(lambda y: (y * box.k).exp(), (x,), (torch.ones(3),))

    return function, attribute(box, "k", 2.0)


@kind
def dual_numbers_inside() -> Any:
    def function(x: Tensor) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones(3))
            return tuple(forward_ad.unpack_dual(dual.exp()))

    return function


@kind
def vmap_and_grad_inside() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Any:
        return torch.func.vmap(torch.func.grad(lambda y: (y * box.k).sin()))(x)

    return function, attribute(box, "k", 2.0)


@kind
def jacobian_inside() -> Any:
    box = Box(k=1.0)
    return lambda x: torch.func.jacrev(lambda y: (y * box.k).sin())(x), attribute(box, "k", 2.0)
