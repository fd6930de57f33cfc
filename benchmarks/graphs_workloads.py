"""Small models whose ops take less time than calling them: what a graph replays, and what it is compared on."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.result import Goal

Function = Callable[..., Any]

LSTM_STEPS = 50
NEW_TOKENS = 64
PAST_TOKENS = 15


@dataclass(frozen=True)
class Program:
    """A function to be made fast, with what it is called on. To make one anew is to begin with the same weights."""

    function: Function  # or a module
    inputs: tuple[Tensor, ...]
    inference: bool = True
    # Puts a faster function in the place of this one, and gives what users then call.
    placed: Callable[[Function], Function] = lambda function: function
    state: Sequence[Tensor] = ()  # what calls change, besides their outputs
    _start: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start.extend(tensor.detach().clone() for tensor in self.state)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def rewind(self) -> None:
        """Back to the beginning: a model that is trained for thousands of steps gets numbers that take longer."""
        for tensor, value in zip(self.state, self._start, strict=True):
            tensor.copy_(value)


@dataclass(frozen=True)
class Workload:
    """What is measured, and the goals: time against eager, and against the best that compiles."""

    make: Callable[[], Program]
    against_eager: Goal | None = None
    against_compiled: Goal | None = None
    first_call_ms: float = 10
    # Other ways to use a compiler on it, of which the best counts.
    parts: tuple[Callable[[], Program], ...] = ()
    compiled: bool = True  # whether there is a goal against what compiles
    exported: bool = True  # whether it is a module that torch.export takes
    needs: str | None = None  # a package

    def missing(self) -> str | None:
        if self.needs is None or importlib.util.find_spec(self.needs) is not None:
            return None
        return f"{self.needs} is not installed"


def _forward(model: nn.Module, *inputs: Tensor) -> Program:
    return Program(model.eval(), inputs)


def _mlp_layers(width: int, depth: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _mlp(width: int, depth: int) -> Program:
    return _forward(_mlp_layers(width, depth), torch.randn(1, width))


class Lstm(nn.Module):
    """Cells one after the other, as in a decoder that feeds back what it said."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, steps: Tensor) -> Tensor:
        hidden = steps.new_zeros(1, self.cell.hidden_size)
        memory = steps.new_zeros(1, self.cell.hidden_size)
        for step in range(LSTM_STEPS):
            hidden, memory = self.cell(steps[step], (hidden, memory))
        return hidden


def _lstm() -> Program:
    torch.manual_seed(0)
    return _forward(Lstm(32), torch.randn(LSTM_STEPS, 1, 32))


class DecoderLayer(nn.Module):
    """Attention of one new token over the past ones, whose keys and values grow by it, and a feed-forward of GELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, token: Tensor, past_keys: Tensor, past_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.projections(self.norm1(token)).chunk(3, dim=-1)
        query, key, value = (part.view(1, 1, self.heads, self.head_width).transpose(1, 2) for part in parts)
        keys, values = torch.cat([past_keys, key], dim=2), torch.cat([past_values, value], dim=2)
        seen = nn.functional.scaled_dot_product_attention(query, keys, values)
        token = token + self.joined(seen.transpose(1, 2).reshape(1, 1, -1))
        return token + self.narrow(nn.functional.gelu(self.wide(self.norm2(token)))), keys, values


def _decoder_layer() -> Program:
    torch.manual_seed(0)
    layer = DecoderLayer(128, 4)
    past = torch.randn(1, 4, PAST_TOKENS, 32)
    return _forward(layer, torch.randn(1, 1, 128), past, past.clone())


def _convnet() -> Program:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return _forward(model, torch.randn(1, 3, 32, 32))


def _training_step(batch: int) -> Program:
    """Forward, backward and SGD as one function."""
    model, optimizer, seen, wanted = _trained(batch)

    def step(seen: Tensor, wanted: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(seen), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step, (seen, wanted), inference=False, state=list(model.parameters()))


def _loss_of_training_step(batch: int) -> Program:
    """The same step, of which a compiler is given the loss alone: as most people use one."""
    model, optimizer, seen, wanted = _trained(batch)

    def loss_of(seen: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(seen), wanted)

    def placed(function: Function) -> Function:
        def step(seen: Tensor, wanted: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = function(seen, wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return Program(loss_of, (seen, wanted), inference=False, placed=placed, state=list(model.parameters()))


def _trained(batch: int) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    model = _mlp_layers(64, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return model, optimizer, torch.randn(batch, 64), torch.randn(batch, 64)


def _generate() -> Program:
    """GPT-2 of two layers writes 64 tokens, greedily, into a cache of keys and values that does not grow."""
    transformers: Any = importlib.import_module("transformers")  # not all of it has types
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=128, n_head=4, n_positions=256, vocab_size=1000, bos_token_id=0, eos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    prompt = torch.randint(1, config.vocab_size, (1, 8))
    cache = transformers.StaticCache(config=config, max_cache_len=prompt.shape[1] + NEW_TOKENS)

    def placed(function: Function) -> Function:
        def generate() -> Tensor:
            cache.reset()
            tokens: Tensor = model.generate(
                prompt, max_new_tokens=NEW_TOKENS, do_sample=False, past_key_values=cache, pad_token_id=0
            )
            return tokens

        model.forward = function
        return generate

    return Program(model.forward, (), inference=False, placed=placed)


WORKLOADS = {
    "MLP 3x64": Workload(lambda: _mlp(64, 3), Goal(0.10), Goal(0.7)),
    "MLP 10x16": Workload(lambda: _mlp(16, 10), Goal(0.03), Goal(0.7)),
    "LSTM of 50 steps": Workload(_lstm, Goal(0.08), Goal(0.7), first_call_ms=30),
    "decoder layer": Workload(_decoder_layer, Goal(0.20), Goal(0.7)),
    "convnet": Workload(_convnet, None, Goal(1.1)),
    "training step, batch 1": Workload(
        lambda: _training_step(1), Goal(0.06), Goal(0.2), exported=False, parts=(lambda: _loss_of_training_step(1),)
    ),
    "training step, batch 32": Workload(
        lambda: _training_step(32), Goal(0.13), Goal(0.2), exported=False, parts=(lambda: _loss_of_training_step(32),)
    ),
    "GPT-2, 64 tokens": Workload(_generate, Goal(0.4), compiled=False, needs="transformers"),
}
