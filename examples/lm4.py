"""A transformer of four layers, forward or training, written out from the memory snapshots that others made of one.

    python examples/lm4.py --context 100                  three forward passes, in float32
    python examples/lm4.py --context 100 --mode train     three steps of training with AdamW
    python examples/lm4.py --context 200 --mode train --amp

What a CUDA memory snapshot holds is the size, the order and the stack of each allocation. What that tells:

- sizes: 512 channels (a norm's weight has 2,048 bytes), a vocabulary of 10,000 (the embedding has 20,480,000), 1,344
  channels in the feed-forward network (2,752,512 / 2,048), batches of 10 (80 bytes of targets) and, from the scores of
  6,400,000 bytes for 100 tokens, 16 heads;
- order: which results are kept in a variable until its function returns, and which are freed within the line. The
  expressions below are written so that they keep and free the same. The exponential is computed twice for that reason;
- stacks: the functions, the lines that share a function, and the ops that autograd added.

What it does not tell, and is assumed: values (rates, the seed, how weights are drawn), which of a rotary embedding's
channels are paired (even with odd), and how the mask and the rotary tables are made, since that happened on the host.
"""

import argparse
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from cuda_autocast import cuda_autocast
from torch import Tensor, nn

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, BATCH = 4, 512, 16, 1344, 10_000, 10


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(outputs, inputs, device=device), std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bsi,oi->bso", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, rows: int, width: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(rows, width, device=device), std=0.02))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class RootMeanSquareNorm(nn.Module):
    def __init__(self, width: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=device))

    def forward(self, x: Tensor) -> Tensor:
        root = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5)
        return x / root * self.weight


class Rotary(nn.Module):
    """Its tables stay on the host: each call copies the rows that it needs, as the snapshots show."""

    def __init__(self, channels: int, context: int) -> None:
        super().__init__()
        rates = 10_000.0 ** (-torch.arange(0, channels, 2) / channels)
        angles = torch.outer(torch.arange(context), rates)
        self.cos, self.sin = torch.cos(angles), torch.sin(angles)

    def forward(self, x: Tensor) -> Tensor:
        cos = self.cos[: x.shape[-2]].to(x.device)
        sin = self.sin[: x.shape[-2]].to(x.device)
        even = x[..., 0::2] * cos - x[..., 1::2] * sin
        odd = x[..., 0::2] * sin + x[..., 1::2] * cos
        return torch.cat([even, odd], dim=-1)


def softmax(x: Tensor) -> Tensor:
    largest = torch.max(x, dim=-1, keepdim=True).values
    return torch.exp(x - largest) / torch.sum(torch.exp(x - largest), dim=-1, keepdim=True)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    length = query.shape[-2]
    mask = torch.tril(torch.ones(length, length)).to(query.device)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key)
    scaled = scores / torch.sqrt(torch.tensor(query.shape[-1], device=query.device))
    scaled.masked_fill_(~mask.bool(), float("-inf"))
    return torch.einsum("bhqk,bhkd->bhqd", softmax(scaled), value)


class Attention(nn.Module):
    def __init__(self, context: int, device: str) -> None:
        super().__init__()
        self.rotary = Rotary(WIDTH // HEADS, context)
        self.query = Linear(WIDTH, WIDTH, device)
        self.key = Linear(WIDTH, WIDTH, device)
        self.value = Linear(WIDTH, WIDTH, device)
        self.output = Linear(WIDTH, WIDTH, device)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = self._heads(query), self._heads(key), self._heads(value)
        query = self.rotary(query)
        key = self.rotary(key)
        mixed = attention(query, key, value)
        mixed = mixed.transpose(1, 2).reshape(x.shape)
        return self.output(mixed)

    @staticmethod
    def _heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.gate = Linear(WIDTH, HIDDEN, device)
        self.down = Linear(HIDDEN, WIDTH, device)
        self.up = Linear(WIDTH, HIDDEN, device)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        gate = gate * torch.sigmoid(gate)
        return self.down(gate * self.up(x))


class Layer(nn.Module):
    def __init__(self, context: int, device: str) -> None:
        super().__init__()
        self.norm_1 = RootMeanSquareNorm(WIDTH, device)
        self.norm_2 = RootMeanSquareNorm(WIDTH, device)
        self.attention = Attention(context, device)
        self.network = FeedForward(device)

    def forward(self, x: Tensor) -> Tensor:
        normed_1 = self.norm_1(x)
        attended = self.attention(normed_1)
        x = x + attended
        normed_2 = self.norm_2(x)
        computed = self.network(normed_2)
        return x + computed


class LanguageModel(nn.Module):
    def __init__(self, context: int, device: str) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, WIDTH, device)
        self.layers = nn.ModuleList([Layer(context, device) for _ in range(LAYERS)])
        self.norm = RootMeanSquareNorm(WIDTH, device)
        self.head = Linear(WIDTH, VOCABULARY, device)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    largest = torch.max(logits, dim=-1, keepdim=True).values
    logarithms = logits - largest - torch.log(torch.sum(torch.exp(logits - largest), dim=-1, keepdim=True))
    wanted = torch.zeros_like(logarithms)
    wanted.scatter_(1, targets.unsqueeze(1), 1.0)
    return -torch.sum(wanted * logarithms) / logits.shape[0]


class PlainAdamW(torch.optim.Optimizer):
    """One parameter after the other, each result a new tensor: the moments are made with the optimizer."""

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float = 1e-3, decay: float = 0.01) -> None:
        super().__init__(parameters, {"rate": rate, "decay": decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["first"] = torch.zeros_like(parameter)
                self.state[parameter]["second"] = torch.zeros_like(parameter)
        self.steps = 0

    def step(self) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            rate = group["rate"] * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
            for parameter in group["params"]:
                gradient, state = parameter.grad.data, self.state[parameter]
                first = state["first"]
                state["first"] = 0.9 * first + 0.1 * gradient
                second = state["second"]
                state["second"] = 0.999 * second + 0.001 * gradient**2
                parameter.data = parameter.data - rate * (state["first"] / (torch.sqrt(state["second"]) + 1e-8))
                parameter.data = parameter.data - group["rate"] * group["decay"] * parameter.data


def forward(context: int, steps: int, device: str) -> None:
    model = LanguageModel(context, device)
    tokens = torch.randint(VOCABULARY, (BATCH, context)).to(device)
    for _ in range(steps):
        model(tokens)


def train(context: int, steps: int, device: str, precision: AbstractContextManager[object]) -> None:
    model = LanguageModel(context, device)
    optimizer = PlainAdamW(model.parameters())
    tokens = torch.randint(VOCABULARY, (BATCH, context)).to(device)
    targets = torch.randint(VOCABULARY, (BATCH,)).to(device)
    # Around all steps, and the backward passes with them: the snapshot frees the cast weights at the end of the run.
    with precision:
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(tokens)
            # output[:, -1, :], as torch 2.6 took it: three views, each with a gradient of its own in backward.
            last = output.narrow(0, 0, BATCH).select(1, -1).narrow(1, 0, VOCABULARY)
            loss = cross_entropy(last, targets)
            loss.backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description="A small transformer whose memory is known from snapshots.")
    parser.add_argument("--context", type=int, default=100, help="tokens in a sequence")
    parser.add_argument("--mode", choices=["forward", "train"], default="forward")
    parser.add_argument("--amp", action="store_true", help="train under autocast, in bfloat16")
    parser.add_argument("--lists", choices=["cuda", "cpu"], default="cuda", help="whose autocast to follow on the CPU")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.mode == "forward":
        forward(options.context, options.steps, options.device)
        return
    precision = nullcontext()
    if options.amp and options.device == "cpu" and options.lists == "cuda":
        precision = cuda_autocast(torch.bfloat16)
    elif options.amp:
        precision = torch.autocast(options.device, torch.bfloat16)
    train(options.context, options.steps, options.device, precision)


if __name__ == "__main__":
    main()
