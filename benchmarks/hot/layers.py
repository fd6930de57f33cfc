"""Every layer and every loss of torch, one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.hot.training import Named, ways


def programs() -> Named:
    """All of them."""
    yield from _losses()
    yield from _layers()


def _losses() -> Named:
    f = nn.functional
    labels = torch.randint(0, 5, (4,))
    real, other = torch.randn(4, 5), torch.randn(4, 5)
    sign = torch.randint(0, 2, (4,)) * 2.0 - 1
    of_logits: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "cross_entropy": lambda x: f.cross_entropy(x, labels, ignore_index=1),
        "cross_entropy of probabilities": lambda x: f.cross_entropy(x, other.softmax(1), weight=torch.rand(5)),
        "nll": lambda x: f.nll_loss(f.log_softmax(x, 1), labels),
        "mse": lambda x: f.mse_loss(x, real),
        "l1": lambda x: f.l1_loss(x, real),
        "smooth_l1": lambda x: f.smooth_l1_loss(x, real),
        "huber": lambda x: f.huber_loss(x, real),
        "bce": lambda x: f.binary_cross_entropy(x.sigmoid(), real.sigmoid()),
        "bce_with_logits": lambda x: f.binary_cross_entropy_with_logits(x, real.sigmoid(), pos_weight=torch.ones(5)),
        "kl": lambda x: f.kl_div(x.log_softmax(1), real.log_softmax(1), log_target=True, reduction="batchmean"),
        "poisson": lambda x: f.poisson_nll_loss(x, real.abs(), full=True),
        "gaussian": lambda x: f.gaussian_nll_loss(x, real, torch.rand(4, 5)),
        "hinge": lambda x: f.hinge_embedding_loss(x[:, 0], sign),
        "soft_margin": lambda x: f.soft_margin_loss(x[:, 0], sign),
        "multi_margin": lambda x: f.multi_margin_loss(x, labels),
        "multilabel_margin": lambda x: f.multilabel_margin_loss(x, torch.tensor([[0, 1, -1, 0, 0]] * 4)),
        "multilabel_soft_margin": lambda x: f.multilabel_soft_margin_loss(x, real.sigmoid()),
        "margin_ranking": lambda x: f.margin_ranking_loss(x[:, 0], x[:, 1], sign),
        "cosine_embedding": lambda x: f.cosine_embedding_loss(x, real, sign),
        "triplet": lambda x: f.triplet_margin_loss(x, real, other),
        "ctc": lambda x: f.ctc_loss(
            x.log_softmax(1)[:, None], labels[None, :1] + 0, torch.tensor([4]), torch.tensor([1])
        ),
        "contrastive": lambda x: f.cross_entropy(f.normalize(x) @ f.normalize(real).T / 0.07, torch.arange(4)),
        "focal": lambda x: ((1 - x.softmax(1)).pow(2) * -x.log_softmax(1)).gather(1, labels[:, None]).mean(),
        "dice": lambda x: 1 - (2 * (x.sigmoid() * real).sum() + 1) / (x.sigmoid().sum() + real.sum() + 1),
    }
    for name, loss in of_logits.items():
        yield f"loss {name}", lambda loss=loss: _loss(loss)


def _loss(loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = nn.Parameter(torch.randn(4, 5))
    ways(nn.ParameterList([x]), lambda: loss(x))


ON_VECTORS: list[nn.Module] = [
    nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.LeakyReLU(), nn.LeakyReLU(inplace=True), nn.ELU(), nn.SELU(),
    nn.CELU(), nn.GELU(),
    nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Softsign(), nn.Softshrink(),
    nn.Hardshrink(),
    nn.Hardtanh(), nn.Hardsigmoid(), nn.Hardswish(), nn.PReLU(), nn.RReLU(), nn.Threshold(0.1, 0), nn.LogSigmoid(),
    nn.Softmax(-1),
    nn.LogSoftmax(-1), nn.Softmin(-1), nn.GLU(), nn.Tanhshrink(), nn.Dropout(0.2), nn.Dropout(0.2, inplace=True),
    nn.AlphaDropout(0.2),
    nn.LayerNorm(8), nn.RMSNorm(8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Identity(),
    nn.Unflatten(1, (2, 4)),
]  # fmt: skip
ON_PICTURES: list[nn.Module] = [
    nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, padding="same", dilation=2), nn.ConvTranspose2d(4, 4, 2, 2),
    nn.BatchNorm2d(4), nn.InstanceNorm2d(4),
    nn.GroupNorm(2, 4), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.AdaptiveMaxPool2d(2),
    nn.LPPool2d(2, 2),
    nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.Upsample(scale_factor=2, mode="bicubic"),
    nn.ZeroPad2d(1), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.CircularPad2d(1), nn.ConstantPad2d(1, 2.0),
    nn.PixelShuffle(2),
    nn.PixelUnshuffle(2), nn.ChannelShuffle(2), nn.Unfold(2), nn.Dropout2d(0.2), nn.Softmax2d(), nn.Flatten(),
    nn.LocalResponseNorm(2),
    nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3)),
    nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(4)),
]  # fmt: skip
ON_SOUND: list[nn.Module] = [
    nn.Conv1d(4, 4, 3), nn.ConvTranspose1d(4, 4, 2), nn.MaxPool1d(2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2),
    nn.BatchNorm1d(4),
    nn.InstanceNorm1d(4), nn.Upsample(scale_factor=2, mode="linear"), nn.ReflectionPad1d(1),
]  # fmt: skip
ON_VOLUMES: list[nn.Module] = [
    nn.Conv3d(4, 4, 3), nn.ConvTranspose3d(4, 4, 2), nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(1),
    nn.BatchNorm3d(4),
    nn.Upsample(scale_factor=2, mode="trilinear"),
]  # fmt: skip


def _layers() -> Named:
    by_shape = {(4, 8): ON_VECTORS, (2, 4, 8, 8): ON_PICTURES, (2, 4, 8): ON_SOUND, (2, 4, 4, 4, 4): ON_VOLUMES}
    for shape, layers in by_shape.items():
        for layer in layers:
            yield (
                f"layer {layer!r} on {shape}".replace("\n", " "),
                lambda layer=layer, shape=shape: _layer(layer, shape),
            )


def _layer(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer = copy.deepcopy(layer)  # the next time begins with the same weights
    x = nn.Parameter(torch.randn(shape))
    ways(nn.ModuleList([layer, nn.ParameterList([x])]), lambda: layer(x * 1).mean())
