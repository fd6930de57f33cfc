"""Random programs of Python, as text: a function that reads state in many ways, and changes of state between its calls.

A seed is a program, always the same one. The text can be printed, and run by itself.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.graphs.guards.kinds.registry import backward
from tests.graphs.guards.lockstep import CALL, Case, Change, Given, Step, module_of, sample
from tests.graphs.guards.random_helpers import Helpers
from tests.graphs.guards.random_reads import Reader
from tests.graphs.guards.random_state import CLASSES, Grower, Mutation, Node, equal, in_place, put, text_of

_IMPORTS = """
import array, collections, copy, dataclasses, functools, itertools, math, operator, types
import numpy, torch
from torch import nn
from torch.nn import functional
"""
_MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.drop = nn.Dropout(0.5)
        self.scale = 1.0
        self.options = {"shift": 0.5, "order": [0, 1]}

    def forward(self, x):
        for place in self.options["order"]:
            x = torch.tanh(self.layers[place](x))
        return self.drop(x) * self.scale + self.options["shift"]

MODEL = Net()
WEIGHT = nn.Parameter(torch.full((3, 3), 0.25))
BUFFER = torch.zeros(3)
OPTIMIZER = torch.optim.KIND([*MODEL.parameters(), WEIGHT], lr=0.05)
LOG, COUNTS, SAVED, HOOKS = [], {"calls": 0}, [], []
GONE = AttributeError, LookupError, TypeError, ValueError, StopIteration  # another change was there before
"""
_WRITES = (
    "LOG.append(v.detach().sum().item())", "LOG.append(v.detach())", "COUNTS['calls'] += 1", "MODEL.last = v.detach()",
    "WEIGHT.seen = len(LOG)", "globals()['LAST'] = 1", "BUFFER.count = getattr(BUFFER, 'count', 0) + 1",
    "COUNTS.update(last=len(LOG))", "LOG.extend([1, 2])", "MODEL.options['order'].reverse()", "print(len(LOG))",
    "setattr(MODEL, 'scale', MODEL.scale + 0.5)", "v = v * len(LOG); LOG.append(0)", "list(map(LOG.append, [1]))",
    "COUNTS.setdefault(str(len(COUNTS)), v.detach())", "sorted([1], key=LOG.append)", "operator.iadd(LOG, [1])",
)  # fmt: skip
_INPUTS = (
    "INPUT", "INPUT.requires_grad_()", "sample(n, 2, 3).requires_grad_()", "sample(n, 3, 2).t()",
    "sample(n, 4, 3)[n % 3:][:2]",
    "(INPUT.requires_grad_() if n % 2 else INPUT * 1.0)", "sample(n, 2, 3).requires_grad_(n % 2 == 0)",
)  # fmt: skip
_OF_TORCH = (
    ("MODEL.eval()", "MODEL.train()"),
    ("MODEL.drop.p = 0.1", "MODEL.drop.p = 0.5"),
    ("MODEL.scale = 2.0", "MODEL.scale = 1.0"),
    ("MODEL.options['shift'] = 1.5", "MODEL.options['shift'] = 0.5"),
    ("MODEL.options['order'].reverse()", "MODEL.options['order'].reverse()"),
    ("WEIGHT.requires_grad_(False)", "WEIGHT.requires_grad_(True)"),
    ("MODEL.layers[0].requires_grad_(False)", "MODEL.layers[0].requires_grad_(True)"),
    ("WEIGHT.data = WEIGHT.data * 2", "WEIGHT.data = WEIGHT.data / 2"),
    ("WEIGHT.data.mul_(2)", "WEIGHT.data.div_(2)"),
    ("MODEL.layers[1].bias = nn.Parameter(torch.ones(3))", "pass"),
    ("MODEL.layers[1] = nn.Linear(3, 3)", "pass"),
    ("HOOKS.append(MODEL.drop.register_forward_hook(lambda m, a, out: out * 2))", "HOOKS.pop().remove()"),
    ("HOOKS.append(MODEL.register_forward_hook(lambda m, a, out: LOG.append(out)))", "HOOKS.pop().remove()"),
    ("HOOKS.append(WEIGHT.register_hook(lambda g: g * 2))", "HOOKS.pop().remove()"),
    ("OPTIMIZER.param_groups[0]['lr'] = 0.2", "OPTIMIZER.param_groups[0]['lr'] = 0.05"),
    ("OPTIMIZER.load_state_dict(OPTIMIZER.state_dict())", "pass"),
    ("OPTIMIZER.zero_grad()", "OPTIMIZER.zero_grad(set_to_none=False)"),
    ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
    ("torch.manual_seed(3)", "torch.manual_seed(4)"),
    ("BUFFER.zero_()", "BUFFER.fill_(0.5)"),
)


@dataclass(frozen=True)
class Program:
    """A text that defines `function`, `arguments`, `observe` and the changes; and in which order all is run."""

    seed: int
    source: str
    steps: tuple[Step, ...]
    changes: int
    outside: bool  # a backward comes after each call

    def __str__(self) -> str:
        order = " ".join("call" if step == CALL else f"{step[0]}_{step[1]}" for step in self.steps)
        return f"# seed {self.seed}: {order}\n{self.source}"


def program_of(seed: int, writes: bool = True, changes: bool = True) -> Program:
    return _Author(random.Random(seed), writes, changes).program(seed)


def case_of(program: Program) -> Case:
    module = module_of(f"random_{program.seed}", program.source, sample=sample)

    def given(number: int) -> Given:
        args, kwargs = module.arguments(number)
        return Given(*args, **kwargs)

    places = range(program.changes)
    changes = [Change(getattr(module, f"do_{place}"), getattr(module, f"undo_{place}")) for place in places]
    use = backward if program.outside else lambda out: None
    return Case(module.function, changes, given=given, observe=module.observe, use=use)


class _Author:
    """Writes one program."""

    def __init__(self, chance: random.Random, writes: bool, changes: bool) -> None:
        self.chance = chance
        odd = self.maybe(0.25)  # types and calls that are seldom seen, and that a guard may not know
        self.writes, self.wants_changes = writes and self.maybe(0.15), changes
        self.ending = chance.choice(["inference", "inference", "outside", "step", "step", "accumulate"])
        self.grower = Grower(chance, odd)
        roots = [self.grower.tree(f"G{place}", chance.randint(1, 3)) for place in range(chance.randint(1, 3))]
        self.reads = Reader(chance, odd, roots)
        self.helpers = Helpers(chance, self.reads)
        self._names = 0

    def maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def name(self, start: str) -> str:
        self._names += 1
        return f"{start}{self._names}"

    def program(self, seed: int) -> Program:
        function, optimizer = self.function(), self.chance.choice(["SGD", "Adam"])
        mutations = self.mutations() if self.wants_changes else []
        state = "\n".join(f"{root.path} = {root.text}" for root in self.reads.roots)
        parts = [_IMPORTS, CLASSES, _MODEL.replace("KIND", optimizer), state, *self.helpers.definitions, function]
        parts += [self.arguments(), self.observe()]
        parts += [_defined(place, mutation, self.reads.roots) for place, mutation in enumerate(mutations)]
        source = "\n".join(part.strip("\n") + "\n" for part in parts)
        return Program(seed, source, self.steps(len(mutations)), len(mutations), self.ending == "outside")

    def steps(self, changes: int) -> tuple[Step, ...]:
        """Some eight calls; the first change comes when there is a replay, or before."""
        found: list[Step] = [CALL] * self.chance.choice([1, 2, 3, 4, 4, 4])
        for place in range(changes):
            found += [("do", place), *[CALL] * self.chance.randint(1, 3)]
            if self.maybe(0.6):
                found += [("undo", place), *[CALL] * self.chance.randint(1, 2)]
        return tuple(found + [CALL] * max(0, 8 - found.count(CALL)))

    def function(self) -> str:
        if self.maybe(0.3):
            self.reads.passed = self.chance.choice(self.reads.roots)
        lines = ["v = x"]
        for _ in range(self.chance.randint(2, 6)):
            lines += self.statement(0)
        if self.writes:
            lines.insert(self.chance.choice([1, len(lines)]), self.chance.choice(_WRITES))
        lines += self.end()
        held = ", held" if self.reads.passed else ""
        return f"def function(x{held}, scale=1.0):\n" + "".join(f"    {line}\n" for line in lines)

    def arguments(self) -> str:
        held = f"{self.reads.passed.path}, " if self.reads.passed else ""
        by_name = self.chance.choice(["{}", "{}", "{'scale': 0.5}", "{'scale': [1.0, 1, True][n % 3]}"])
        x = "sample(n, 2, 3)" if self.maybe(0.7) else self.chance.choice(_INPUTS)
        return f"INPUT = sample(0, 2, 3)\n\ndef arguments(n):\n    return ({x}, {held}), {by_name}\n"

    def observe(self) -> str:
        roots = ", ".join(root.path for root in self.reads.roots)
        return (
            f"def observe():\n    held = [{roots}], vars(MODEL).get('last')\n"
            "    return MODEL, WEIGHT, BUFFER, LOG, COUNTS, OPTIMIZER, INPUT, held\n"
        )

    def statement(self, depth: int) -> list[str]:
        makers = [
            self.scaled, self.scaled, self.unary, self.weighted, self.layer, self.called, self.called, self.looped,
            self.in_place, self.buffer, self.drawn, self.listed, self.aliased, self.tensor_of_state, self.shaped,
            self.made, self.local,
        ]  # fmt: skip
        if depth < 2:
            makers += [self.branched, self.branched, self.branched_on_a_value, self.tried, self.without_gradient]
        return self.chance.choice(makers)(depth)

    def block(self, depth: int) -> list[str]:
        return [f"    {line}" for _ in range(self.chance.randint(1, 2)) for line in self.statement(depth + 1)]

    def scaled(self, depth: int) -> list[str]:
        return [f"v = v {self.chance.choice('*+-')} {self.reads.number()}"]

    def unary(self, depth: int) -> list[str]:
        return [f"v = {self.chance.choice(['torch.sin', 'torch.tanh', 'functional.relu', 'torch.sigmoid'])}(v)"]

    def weighted(self, depth: int) -> list[str]:
        return [self.chance.choice(["v = v @ WEIGHT", "v = functional.linear(v, WEIGHT)", "v = v * WEIGHT.sum()"])]

    def layer(self, depth: int) -> list[str]:
        return [self.chance.choice(["v = MODEL(v)", "v = MODEL.layers[0](v)", "v = torch.tanh(MODEL(v) * scale)"])]

    def called(self, depth: int) -> list[str]:
        text, node = self.chance.choice(self.helpers.calls)
        return [f"v = {text.format(x='v', held=self.reads.reach(node) if node else '')}"]

    def looped(self, depth: int) -> list[str]:
        rows = self.reads.rows()
        if not rows:
            return self.scaled(depth)
        path = self.reads.reach(self.chance.choice(rows))
        heads = [f"for k in {path}:", f"for n, k in enumerate({path}):", f"for k, _ in zip({path}, range(3)):"]
        return [self.chance.choice(heads), "    v = torch.tanh(v * float(k) + 0.1)"]

    def listed(self, depth: int) -> list[str]:
        rows = self.reads.rows()
        if not rows:
            return self.unary(depth)
        path, only = self.reads.reach(self.chance.choice(rows)), self.chance.choice(["", " if k > 0"])
        return [f"v = sum([torch.sin(v * float(k)) for k in {path}{only}], v)"]

    def aliased(self, depth: int) -> list[str]:
        nodes = [node for node in self.reads.nodes() if node.parts]
        if not nodes:
            return self.scaled(depth)
        node, name = self.chance.choice(nodes), self.name("part")
        return [f"{name} = {self.reads.reach(node)}", f"v = v * {self.reads.number(node, name)} + 0.1"]

    def tensor_of_state(self, depth: int) -> list[str]:
        nodes = self.reads.nodes("tensor")
        return [f"v = v + {self.reads.reach(self.chance.choice(nodes))}"] if nodes else self.unary(depth)

    def in_place(self, depth: int) -> list[str]:
        return ["w = v.clone()", f"w.mul_({self.reads.number()})", "w[0] += 0.5", "v = w"]

    def buffer(self, depth: int) -> list[str]:
        return ["BUFFER.mul_(0.9).add_(v.detach().sum(0), alpha=0.1)", "v = v + BUFFER"]

    def drawn(self, depth: int) -> list[str]:
        return [self.chance.choice(["v = v + torch.rand(2, 3)", "v = functional.dropout(v, 0.5)"])]

    def shaped(self, depth: int) -> list[str]:
        ways = ["v = v.t().contiguous().t()", "v = torch.cat([v[:1], v[1:] * 2])", "v = v.view(-1).view(2, 3)"]
        return [self.chance.choice([*ways, "v = torch.stack([row + n for n, row in enumerate(v)])"])]

    def made(self, depth: int) -> list[str]:
        """Objects that live for the call alone."""
        name = self.name("made")
        return [
            f"{name} = {{'k': [{self.reads.number()}], 'o': Box(k=0.5)}}", f"{name}['k'].append({name}['o'].k)",
            f"{name}['o'].k = sum({name}['k'])", f"v = v * {name}['o'].k",
        ]  # fmt: skip

    def local(self, depth: int) -> list[str]:
        name, number = self.name("inner"), self.reads.number()
        return [f"def {name}(y, by={self.reads.number()}):", f"    return y * by + {number}", f"v = {name}(v)"]

    def branched(self, depth: int) -> list[str]:
        return [f"if {self.reads.condition()}:", *self.block(depth), "else:", *self.block(depth)]

    def branched_on_a_value(self, depth: int) -> list[str]:
        return [f"if v.sum() > {self.reads.number()}:", *self.block(depth), "else:", *self.block(depth)]

    def tried(self, depth: int) -> list[str]:
        holders = self.reads.nodes("dict", "ordered", "box", "namespace")
        if not holders:
            return self.unary(depth)
        node = self.chance.choice(holders)
        key, error = (".new", "AttributeError") if node.kind in ("box", "namespace") else ("['new']", "KeyError")
        return ["try:", f"    v = v * {self.reads.reach(node)}{key}", f"except {error}:", *self.block(depth)]

    def without_gradient(self, depth: int) -> list[str]:
        return ["with torch.no_grad():", f"    w = v * {self.reads.number()}", "v = v + w"]

    def end(self) -> list[str]:
        if self.ending in ("step", "accumulate"):
            steps = self.ending == "step"
            return [
                *(["OPTIMIZER.zero_grad()"] if steps else []), "loss = torch.tanh(v + 0 * WEIGHT.sum()).pow(2).mean()",
                "loss.backward()", *(["OPTIMIZER.step()"] if steps or self.maybe(0.3) else []), "return loss.detach()",
            ]  # fmt: skip
        ways = ["return v", "return v, v.sum(), v", "return {'v': v, 'k': 1.5, 'parts': [v + 1]}"]
        return [self.chance.choice([*ways, "return [v, (v * 2, None)]", f"return v, {self.reads.number()}"])]

    def mutations(self) -> list[Mutation]:
        makers = [self.of_state, self.of_state, self.of_state, self.of_a_function, self.of_torch]
        return [self.chance.choice(makers)() for _ in range(self.chance.randint(1, 3))]

    def of_state(self) -> Mutation:
        """Of what the function reads, mostly, or of what holds it."""
        read = self.reads.read
        node = self.chance.choice(read if read and self.maybe(0.85) else self.reads.nodes())
        while node.parent is not None and (not node.can_be_put() or self.maybe(0.2)):
            node = node.parent
        way = self.chance.choice([in_place, in_place, equal, None, None])
        return (way and way(self.chance, node)) or put(node, self.grown_again(node))

    def grown_again(self, node: Node) -> str:
        """The same shape with another leaf."""
        leaf = self.chance.choice([one for one in node.all() if not one.parts])
        return text_of(node, leaf, self.grower.leaf_text(leaf))

    def of_a_function(self) -> Mutation:
        return self.chance.choice(self.helpers.swaps)

    def of_torch(self) -> Mutation:
        do, undo = self.chance.choice(_OF_TORCH)
        return Mutation((do,), (undo,))


def _defined(place: int, mutation: Mutation, roots: list[Node]) -> str:
    names, text = ", ".join(root.path for root in roots), ""
    for way, lines in (("do", mutation.do), ("undo", mutation.undo)):
        body = "".join(f"        {line}\n" for line in lines)
        text += f"def {way}_{place}():\n    global {names}\n    try:\n{body}    except GONE:\n        pass\n\n"
    return text
