"""Networks as people write them by hand: convolutional, recurrent, and with attention."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.hot.training import Named, ways


def programs() -> Named:
    """All of them."""
    for family in (_convnets, _recurrent, _encoders):
        yield from family()


class Residual(nn.Module):
    """A block as in ResNet, or, with groups, as in MobileNet."""

    def __init__(self, width: int, groups: int, activation: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm2(self.conv2(self.activation(self.norm1(self.conv1(x))))) + x)


def _stem(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), *layers, nn.Flatten(), nn.LazyLinear(10))


def _convnets() -> Named:
    pool = nn.MaxPool2d(3, 2, 1)
    yield (
        "resnet-like",
        lambda: _picture_classes(
            _stem(
                nn.BatchNorm2d(8),
                nn.ReLU(inplace=True),
                pool,
                Residual(8, 1, nn.ReLU(inplace=True)),
                nn.AdaptiveAvgPool2d(1),
            )
        ),
    )
    for name, activation in (
        ("ReLU6", nn.ReLU6(inplace=True)),
        ("Hardswish", nn.Hardswish(inplace=True)),
        ("SiLU", nn.SiLU(inplace=True)),
    ):
        yield (
            f"mobilenet-like {name}",
            lambda activation=activation: _picture_classes(
                _stem(Residual(8, 8, activation), nn.Dropout2d(0.1), nn.AdaptiveAvgPool2d(1))
            ),
        )
    yield "vgg-like", lambda: _picture_classes(_stem(nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5)))
    yield "lenet-like", lambda: _picture_classes(_stem(nn.Tanh(), nn.AvgPool2d(2), nn.Sigmoid()))
    yield "unet-like", _unet
    yield (
        "channels last",
        lambda: _picture_classes(
            _stem(nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 1, nn.ReLU()), nn.AdaptiveAvgPool2d(1)), torch.channels_last
        ),
    )


def _picture_classes(model: nn.Module, order: torch.memory_format = torch.contiguous_format) -> None:
    pictures, labels = torch.randn(2, 3, 32, 32).to(memory_format=order), torch.randint(0, 10, (2,))
    model(pictures)
    model.to(memory_format=order)
    ways(model, lambda: nn.functional.cross_entropy(model(pictures), labels, label_smoothing=0.1))
    model.eval()(pictures).argmax(1).eq(labels).float().mean().item()


def _unet() -> None:
    down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU())
    up = nn.ConvTranspose2d(8, 8, 4, 2, 1)
    last = nn.Conv2d(11, 3, 1)
    pictures, times = torch.randn(2, 3, 16, 16), torch.rand(2)

    def loss() -> torch.Tensor:
        scale = torch.exp(torch.arange(4) * -0.5)
        angles = times[:, None] * scale[None]
        place = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :, None, None]
        noise = torch.randn_like(pictures)
        noised = pictures * (1 - times.view(-1, 1, 1, 1)).sqrt() + noise * times.view(-1, 1, 1, 1).sqrt()
        hidden = down(noised) + place
        wide = nn.functional.interpolate(hidden, scale_factor=2, mode="nearest") + up(hidden)
        smooth = nn.functional.interpolate(hidden, scale_factor=2, mode="bilinear", align_corners=False)
        return nn.functional.mse_loss(last(torch.cat([wide + smooth, pictures], 1)), noise)

    ways(nn.ModuleList([down, up, last]), loss)


def _recurrent() -> Named:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield kind.__name__, lambda kind=kind: _sequence(kind(8, 16, num_layers=2, batch_first=True, dropout=0.1))
        yield (
            f"{kind.__name__} both ways",
            lambda kind=kind: _sequence(kind(8, 8, bidirectional=True, batch_first=True)),
        )
        yield f"{kind.__name__} packed", lambda kind=kind: _packed(kind(8, 16, batch_first=True))
    for cell in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        yield cell.__name__, lambda cell=cell: _cell(cell(8, 16))
    yield "LSTM projected", lambda: _sequence(nn.LSTM(8, 32, proj_size=16, batch_first=True))


def _sequence(layer: nn.Module) -> None:
    words, labels = torch.randint(0, 64, (2, 6)), torch.randint(0, 64, (2, 6))
    embedding, head = nn.Embedding(64, 8, padding_idx=0), nn.Linear(16, 64)
    model = nn.ModuleList([embedding, layer, head])

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(head(layer(embedding(words))[0]).flatten(0, 1), labels.flatten())

    ways(model, loss, half=not isinstance(layer, nn.LSTM))  # oneDNN has no LSTM in bfloat16 on older processors


def _packed(layer: nn.Module) -> None:
    x = torch.randn(3, 6, 8)
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

    def loss() -> torch.Tensor:
        packed = pack(x, torch.tensor([6, 4, 3]), batch_first=True, enforce_sorted=False)
        return pad(layer(packed)[0], batch_first=True)[0].square().mean()

    ways(layer, loss, half=not isinstance(layer, nn.LSTM))


def _cell(cell: nn.Module) -> None:
    x = torch.randn(4, 2, 8)

    def loss() -> torch.Tensor:
        state = None
        for step in x:
            state = cell(step, state)
        return (state if isinstance(state, torch.Tensor) else state[0]).mean()

    ways(cell, loss)


def _encoders() -> Named:
    for first in (False, True):
        yield f"TransformerEncoder norm_first={first}", lambda first=first: _encoder(first)
    yield "Transformer", _encoder_decoder
    yield "MultiheadAttention", _attention
    yield "scaled_dot_product_attention", _products


def _encoder(first: bool) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=first, activation="gelu")
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 4))
    x, y = torch.randn(2, 6, 32), torch.randint(0, 4, (12,))
    ways(model, lambda: nn.functional.cross_entropy(model(x).reshape(-1, 4), y))


def _encoder_decoder() -> None:
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    x, mask = torch.randn(2, 6, 32), nn.Transformer.generate_square_subsequent_mask(6)
    ways(model, lambda: model(x, x, tgt_mask=mask, tgt_is_causal=True).mean())


def _attention() -> None:
    model = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
    x, padding = torch.randn(2, 6, 32), torch.zeros(2, 6, dtype=torch.bool)
    ways(model, lambda: model(x, x, x, key_padding_mask=padding)[0].mean())
    ways(model, lambda: model(x, x, x, need_weights=False)[0].mean())


def _products() -> None:
    q = nn.Parameter(torch.randn(2, 4, 6, 8))
    attend = nn.functional.scaled_dot_product_attention
    model = nn.ParameterList([q])
    ways(model, lambda: attend(q, q, q, is_causal=True).mean())
    ways(model, lambda: attend(q, q, q, attn_mask=torch.zeros(6, 6), dropout_p=0.1).mean())
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        ways(model, lambda: attend(q, q, q).mean())
