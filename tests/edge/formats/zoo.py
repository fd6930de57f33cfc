"""Small models of the kinds that people deploy, made here, and saved in every format that the edge profiler takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn


class ConvNormActivation(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.activation = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.norm(x)
        return self.activation(x)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.expand = ConvNormActivation(inputs, hidden, kernel=1)
        self.depthwise = ConvNormActivation(hidden, hidden, stride=stride, groups=hidden)
        self.project = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        y = self.project(y)
        y = self.norm(y)
        if self.shortcut:
            y = x + y
        return y


class MobileNet(nn.Module):
    """Inverted residual blocks with depthwise convolutions, a global pool and a linear classifier."""

    # outputs, stride, expansion of each block
    BLOCKS = (
        (16, 1, 1),
        (24, 2, 4),
        (24, 1, 4),
        (32, 2, 4),
        (32, 1, 4),
        (64, 2, 4),
        (64, 1, 4),
        (64, 1, 4),
        (96, 2, 4),
        (96, 1, 4),
    )

    def __init__(self) -> None:
        super().__init__()
        features: list[nn.Module] = [ConvNormActivation(3, 16, stride=2)]
        inputs = 16
        for outputs, stride, expand in self.BLOCKS:
            features.append(InvertedResidual(inputs, outputs, stride, expand))
            inputs = outputs
        features.append(ConvNormActivation(inputs, 256, kernel=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Linear(256, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = x.mean([2, 3])
        return self.classifier(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, x.size(2) // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        query = self.split(self.query(x))
        key = self.split(self.key(context))
        value = self.split(self.value(context))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(x.size(0), x.size(1), x.size(2)))


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        x = x + self.attention(y, y)
        return x + self.mlp(self.mlp_norm(x))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=True)
        self.context_norm = nn.LayerNorm(width)
        self.context_attention = Attention(width, heads, causal=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        y = self.attention_norm(x)
        x = x + self.attention(y, y)
        x = x + self.context_attention(self.context_norm(x), context)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """An encoder and a decoder over the same tokens."""

    def __init__(self, vocabulary: int = 128, length: int = 16, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.encoder = nn.ModuleList([EncoderLayer(width, heads) for _ in range(2)])
        self.decoder = nn.ModuleList([DecoderLayer(width, heads) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.tokens(tokens) + self.positions
        context = embedded
        for layer in self.encoder:
            context = layer(context)
        x = embedded
        for layer in self.decoder:
            x = layer(x, context)
        return self.head(self.norm(x))


class Lstm(nn.Module):
    """Two recurrent layers, and a classifier of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.lstm(x)
        return self.classifier(steps[:, -1])


def mobilenet() -> nn.Module:
    torch.manual_seed(0)
    return MobileNet().eval()


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return Transformer().eval()


def lstm() -> nn.Module:
    torch.manual_seed(0)
    return Lstm().eval()


def image() -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)),)


def tokens() -> tuple[Tensor, ...]:
    return (torch.randint(0, 128, (1, 16), generator=torch.Generator().manual_seed(1)),)


def sequence() -> tuple[Tensor, ...]:
    return (torch.randn(1, 20, 16, generator=torch.Generator().manual_seed(1)),)


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: the same weights and the same inputs each time."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]

    def expected(self) -> Tensor:
        """What the model itself answers, in eager mode."""
        with torch.no_grad():
            answer: Tensor = self.model()(*self.inputs())
        return answer


ZOO: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("mobilenet", mobilenet, image),
        Entry("transformer", transformer, tokens),
        Entry("lstm", lstm, sequence),
    )
}


def exported(entry: Entry) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(entry.model(), entry.inputs())


def save_lite(entry: Entry, path: Path, debug: bool = True) -> Path:
    torch.jit.script(entry.model())._save_for_lite_interpreter(str(path), _save_mobile_debug_info=debug)
    return path


def save_script(entry: Entry, path: Path) -> Path:
    torch.jit.script(entry.model()).save(str(path))
    return path


def save_exported(entry: Entry, path: Path) -> Path:
    torch.export.save(exported(entry), path)
    return path


def save_aotinductor(entry: Entry, path: Path, options: dict[str, Any] | None = None) -> Path:
    """Takes a C++ compiler, and up to a minute of it."""
    torch._inductor.aoti_compile_and_package(exported(entry), package_path=str(path), inductor_configs=options)
    return path


def save_onnx(entry: Entry, path: Path) -> Path:
    pytest.importorskip("onnxscript")
    torch.onnx.export(entry.model(), entry.inputs(), str(path), dynamo=True, verbose=False)
    return path


def save_executorch(entry: Entry, path: Path, delegate: bool = False) -> Path:
    """With a delegate, XNNPACK runs what it can."""
    exir = pytest.importorskip("executorch.exir")
    partitioners = []
    if delegate:
        xnnpack = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner")
        partitioners.append(xnnpack.XnnpackPartitioner())
    edge = exir.to_edge_transform_and_lower(exported(entry), partitioner=partitioners)
    path.write_bytes(edge.to_executorch().buffer)
    return path
