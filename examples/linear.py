"""One large linear layer, called in a loop, written out from the memory snapshot that someone made of it on an H100.

    python examples/linear.py                 1/10 of the snapshot's sizes in each direction, for a small machine
    python examples/linear.py --scale 1       as in the snapshot: 4.4 GB

The snapshot has 12 allocations. Six are the input and the output of three calls: 200,000,000 and 1,000,000,000 bytes,
with a weight of 2,000,000,000 and a bias of 200,000. So the layer maps 10,000 features to 50,000, and a batch has 5,000
rows. The old input and output are freed when the loop has made the new ones: both are variables. The rest, 1 MiB in
each call and 32 MiB in the first, is what cuBLASLt and cuBLAS work in, and is not of the program.

What the snapshot does not tell, and is assumed: the values. It shows no backward pass.
"""

import argparse

import torch
from torch import nn

INPUTS, OUTPUTS, ROWS = 10_000, 50_000, 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description="A linear layer whose memory is known from a snapshot.")
    parser.add_argument("--scale", type=float, default=0.1, help="part of the snapshot's features and rows")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    inputs, outputs, rows = (max(1, round(size * options.scale)) for size in (INPUTS, OUTPUTS, ROWS))
    layer = nn.Linear(inputs, outputs, device=options.device)
    for _ in range(options.calls):
        x = torch.randn(rows, inputs, device=options.device)
        y = layer(x)
    print(f"{options.calls} calls gave {tuple(y.shape)}")


if __name__ == "__main__":
    main()
