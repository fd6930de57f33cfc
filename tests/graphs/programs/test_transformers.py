"""Models of the transformers library through graphs, beside an eager twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.graphs.programs.test_models import Wrap, held_to_eager, one_thread, state_of  # noqa: F401
from tests.tape.outcome import bits
from tests.tape.test_transformers import DECODERS, MODELS, VOCABULARY, made

transformers = pytest.importorskip("transformers")
_STEPS = 8


def tokens_of(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (2, 7), generator=generator) for _ in range(_STEPS)]


def uncached(model: Any) -> dict[str, bool]:
    """A cache of keys and values is an object that the call makes and returns: this asks for none."""
    return {} if "Bert" in type(model).__name__ else {"use_cache": False}


@pytest.mark.parametrize("make", MODELS)
def test_forward(make: Callable[[], Any]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].eval()
        function = wrap(model)
        with torch.no_grad():
            outputs = [function(tokens, labels=tokens, **uncached(model)) for tokens in tokens_of(1)]
        return [(type(out), bits(out.loss), bits(out.logits)) for out in outputs]

    held_to_eager(run, _STEPS - 2)


@pytest.mark.parametrize("make", MODELS)
def test_training_step(make: Callable[[], Any]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(tokens: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(tokens, labels=tokens, **uncached(model)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        function = wrap(step)
        return [(bits(function(tokens)), state_of(model)) for tokens in tokens_of(2)]

    held_to_eager(run, _STEPS - 4)


@pytest.mark.parametrize("make", MODELS)
def test_forward_and_backward(make: Callable[[], Any]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        function = wrap(lambda tokens: model(tokens, labels=tokens, **uncached(model)).loss)
        found = []
        for tokens in tokens_of(3):
            optimizer.zero_grad()
            loss = function(tokens)
            loss.backward()
            optimizer.step()
            found.append((bits(loss), state_of(model)))
        return found

    held_to_eager(run, _STEPS - 3)


@pytest.mark.parametrize("make", MODELS)
def test_whole_model_with_its_backward_outside(make: Callable[[], Any]) -> None:
    """The loss and the logits that it is computed from are both results."""

    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        function = wrap(model)
        found = []
        for tokens in tokens_of(6):
            optimizer.zero_grad()
            out = function(tokens, labels=tokens, **uncached(model))
            out.loss.backward()
            optimizer.step()
            found.append((type(out), bits(out.loss), bits(out.logits), state_of(model)))
        return found

    held_to_eager(run, _STEPS - 3)


@pytest.mark.parametrize("make", DECODERS)
def test_generation_with_a_static_cache(make: Callable[[], Any]) -> None:
    """The decoding step is one graph: it writes its keys and values into the cache where they lie."""

    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].eval()
        cache = transformers.StaticCache(config=model.config, max_cache_len=24)

        def step(token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            out = model(token, past_key_values=cache, cache_position=place, use_cache=True)
            return out.logits[:, -1:].argmax(-1)

        function = wrap(step)
        found = []
        with torch.no_grad():
            for prompt in tokens_of(4)[:2]:
                cache.reset()
                token = step(prompt, torch.arange(prompt.shape[1]))
                for place in range(prompt.shape[1], prompt.shape[1] + 10):
                    token = function(token, torch.tensor([place]))
                    found.append(bits(token))
        return found

    held_to_eager(run, 0)


@pytest.mark.parametrize("make", DECODERS)
def test_generate(make: Callable[[], Any]) -> None:
    """The whole of generate, whatever becomes of it."""

    def run(wrap: Wrap) -> list[Any]:
        model = made(make)[0].eval()

        def generate(tokens: torch.Tensor) -> torch.Tensor:
            mask = torch.ones_like(tokens)
            return model.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)

        function = wrap(generate)
        return [bits(function(tokens)) for tokens in tokens_of(5)[:4]]

    held_to_eager(run, 0)
