"""Methods of training that are more than a network and a loss."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.hot.training import Named, train, ways


def programs() -> Named:
    """All of them."""
    yield "embedding bag", _bag
    yield "policy gradient", _policy
    yield "variational autoencoder", _autoencoder
    yield "messages on a graph", _graph
    yield "mixture of experts", _experts
    yield "gradient scaler and averaged weights", _scaled
    yield "checkpointing", _checkpointed
    yield "rotary positions", _rotary
    yield "gradient penalty", _penalty
    yield "gradients in a batch", _functional
    yield "accumulated gradients", _accumulated


def _bag() -> None:
    model = nn.EmbeddingBag(16, 8, mode="mean")
    words, starts = torch.randint(0, 16, (10,)), torch.tensor([0, 4])
    ways(model, lambda: model(words, starts).mean())
    other = nn.Embedding(16, 8, max_norm=1.0, scale_grad_by_freq=True)
    ways(other, lambda: other(words).mean())


def _policy() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6))
    states, rewards = torch.randn(8, 4), torch.randn(8)

    def loss() -> torch.Tensor:
        out = model(states)
        choice = torch.distributions.Categorical(logits=out[:, :2])
        action = choice.sample()
        motion = torch.distributions.Normal(out[:, 2:4], out[:, 4:].exp())
        returns = rewards.flip(0).cumsum(0).flip(0)
        advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
        ratio = (choice.log_prob(action) - choice.log_prob(action).detach()).exp()
        clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return -(clipped.mean() + motion.log_prob(motion.rsample()).mean() + choice.entropy().mean())

    ways(model, loss)


def _autoencoder() -> None:
    encoder, decoder = nn.Linear(8, 4), nn.Linear(2, 8)
    x = torch.rand(4, 8)

    def loss() -> torch.Tensor:
        mean, log_variance = encoder(x).chunk(2, dim=-1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        kl = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return nn.functional.mse_loss(decoder(code).sigmoid(), x, reduction="sum") + kl

    ways(nn.ModuleList([encoder, decoder]), loss)


def _graph() -> None:
    layer = nn.Linear(8, 8)
    x, edges = torch.randn(5, 8), torch.randint(0, 5, (2, 12))

    def loss() -> torch.Tensor:
        hidden = layer(x)
        sent = hidden.index_select(0, edges[0])
        summed = torch.zeros_like(hidden).index_add_(0, edges[1], sent)
        counted = torch.zeros(5).scatter_add_(0, edges[1], torch.ones(12)).clamp_(min=1)
        highest = torch.zeros_like(hidden).scatter_reduce(0, edges[1][:, None].expand_as(sent), sent, "amax")
        return (summed / counted[:, None] + highest).relu().mean()

    ways(layer, loss)


def _experts() -> None:
    gate, experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    x = torch.randn(6, 8)

    def loss() -> torch.Tensor:
        weights, chosen = gate(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(experts):
            row, column = torch.where(chosen == index)
            out.index_add_(0, row, (expert(x[row]) * weights[row, column, None]).to(out.dtype))
        return out.square().mean()

    ways(nn.ModuleList([gate, experts]), loss)


def _scaled() -> None:
    model = nn.Linear(8, 8)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(4, 8)).mean()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)


def _checkpointed() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.GELU())
    x = torch.randn(4, 8, requires_grad=True)
    train(model, lambda: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).mean())
    train(model, lambda: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True).mean())


def _rotary() -> None:
    x = nn.Parameter(torch.randn(2, 4, 6, 8))

    def loss() -> torch.Tensor:
        angles = torch.outer(torch.arange(6).float(), 1.0 / 10000 ** (torch.arange(0, 4) / 4))
        as_complex = torch.view_as_complex(x.float().reshape(*x.shape[:-1], 4, 2))
        turned = torch.view_as_real(as_complex * torch.polar(torch.ones_like(angles), angles)).flatten(3)
        first, second = x.chunk(2, dim=-1)
        cosine, sine = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        scores = torch.einsum("bhqd,bhkd->bhqk", turned, x * cosine + torch.cat([-second, first], -1) * sine)
        causal = torch.triu(torch.full((6, 6), float("-inf")), diagonal=1)
        return torch.softmax(scores + causal, -1).masked_fill(causal.isinf(), 0.0).mean()

    ways(nn.ParameterList([x]), loss)


def _penalty() -> None:
    critic = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def loss() -> torch.Tensor:
        with torch.enable_grad():
            x = torch.randn(4, 8, requires_grad=True)
            (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            return ((slope.norm(2, dim=1) - 1) ** 2).mean()

    train(critic, loss)


def _functional() -> None:
    model, x = nn.Linear(8, 2), torch.randn(4, 8)
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    torch.func.jacrev(lambda x: loss(parameters, x))(x)


def _accumulated() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 8)), batch_size=2, shuffle=True)
    for (x,) in data:
        (model(x).mean() / 4).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
