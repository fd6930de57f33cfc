"""Models of the transformers library, small, from their configurations: forward, training step and generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import bits

transformers = pytest.importorskip("transformers")

VOCABULARY = 37


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    return transformers.BertForMaskedLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


DECODERS: list[Callable[[], Any]] = [gpt2, llama]
MODELS = [*DECODERS, bert, t5]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(make: Callable[[], Any]) -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = make()
    return model, [torch.randint(VOCABULARY, (2, 7)) for _ in range(6)]


@pytest.mark.parametrize("make", MODELS)
def test_forward(make: Callable[[], Any]) -> None:
    model, batches = made(make)
    model.eval()
    with torch.no_grad():
        expected = [bits(model(batch, labels=batch).logits) for batch in batches]
        tape = torchreel.trace(lambda tokens: model(tokens, labels=tokens).logits, batches[0])
    assert [bits(tape.replay(batch)) for batch in batches] == expected


@pytest.mark.parametrize("make", MODELS)
def test_forward_returns_the_model_s_own_output(make: Callable[[], Any]) -> None:
    model, batches = made(make)
    model.eval()
    expected = model(batches[1], labels=batches[1])
    tape = torchreel.trace(model, batches[0], labels=batches[0])
    output = tape.replay(batches[1], labels=batches[1])
    assert type(output) is type(expected)
    assert bits(output.loss) == bits(expected.loss) and bits(output.logits) == bits(expected.logits)


@pytest.mark.parametrize("make", MODELS)
def test_training(make: Callable[[], Any]) -> None:
    def run(traced: bool) -> tuple[list[Any], list[Any]]:
        model, batches = made(make)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(tokens: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        losses = [bits(step(batches[0]))]
        if traced:
            tape = torchreel.trace(step, batches[1])
            losses += [bits(tape.replay(batch)) for batch in batches[2:]]
        else:
            losses += [bits(step(batch)) for batch in batches[1:]][1:]
        state = [*model.state_dict().values(), torch.get_rng_state()]
        state += [value for entry in optimizer.state.values() for value in entry.values()]
        return losses, [bits(value) for value in state]

    assert run(traced=True) == run(traced=False)


@pytest.mark.parametrize("make", DECODERS)
def test_generation(make: Callable[[], Any]) -> None:
    """Greedy: the tokens that come out are data, and none of them is read by Python."""
    model, batches = made(make)
    model.eval()

    def generate(tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.ones_like(tokens)
        return model.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)

    expected = [bits(generate(batch)) for batch in batches[:3]]
    tape = torchreel.trace(generate, batches[0])
    assert bits(tape.replay(batches[0])) == expected[0]
    assert [bits(tape.replay(batch)) for batch in batches[:3]] == expected
