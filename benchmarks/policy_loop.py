"""A program that is all overhead: reinforcement learning with tiny tensors, about 4,500 ops in a step.

A policy and a value network of 32 units play 8 environments for 18 moves, then learn from them in 4 passes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

OPS_PER_STEP = 4_518
_MOVES = 18
_PASSES = 4


class Agent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.policy = nn.Linear(32, 2)
        self.value = nn.Linear(32, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(seen)
        return torch.log_softmax(self.policy(hidden), dim=-1), self.value(hidden).squeeze(-1)


class PolicyLoop:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.agent = Agent()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=1e-3, foreach=False)
        self.physics = torch.eye(4) + 0.01 * torch.randn(4, 4)
        self.push = torch.randn(2, 4)
        self.state = torch.zeros(8, 4)

    def step(self) -> None:
        self._learn(*self._play())

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _play(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        seen, chosen, chances, rewards = [], [], [], []
        for _ in range(_MOVES):
            logits, _ = self.agent(self.state)
            action = torch.multinomial(logits.exp(), 1)
            seen.append(self.state)
            chosen.append(action)
            chances.append(logits.gather(1, action))
            self.state = torch.tanh(self.state @ self.physics + self.push[action.squeeze(1)])
            rewards.append(1 - self.state.square().sum(dim=1))
        return torch.cat(seen), torch.cat(chosen), torch.cat(chances), torch.cat(rewards)

    def _learn(self, seen: Tensor, chosen: Tensor, chances: Tensor, rewards: Tensor) -> None:
        for _ in range(_PASSES):
            logits, values = self.agent(seen)
            advantage = (rewards - values).detach()
            change = (logits.gather(1, chosen) - chances).exp().squeeze(1)
            gain = torch.minimum(change * advantage, change.clamp(0.8, 1.2) * advantage).mean()
            entropy = -(logits.exp() * logits).sum(dim=1).mean()
            loss = (rewards - values).square().mean() - gain - 0.01 * entropy
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def run(steps: int) -> None:
    loop = PolicyLoop()
    for _ in range(steps):
        loop.step()
