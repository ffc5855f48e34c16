"""The same DeepFM in PyTorch, as an engineer would write it by hand; a side of peers.py, run in an environment that has torch.

    python peer_torch.py ROWS.npz OUT.json --variant one_table --batch 1024 --steps 300

`one_table`: one [ids, 1 + 32] table with sparse gradients and SparseAdam (lazy Adam), or Adagrad. `dense`: dense Adam, fused, the
model under torch.compile; it touches every row at every step. Batches are slices of tensors in memory.
"""

import json
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from peer_options import lengths, peer_parser, read_rows
from torch import nn

SIZE, LAYERS = 32, (128, 64, 32)


class DeepFM(nn.Module):  # type: ignore[misc]
    def __init__(self, ids: int, fields: int, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(ids, 1 + SIZE, sparse=sparse)
        nn.init.normal_(self.table.weight, std=0.01)
        widths = (fields * SIZE, *LAYERS)
        hidden = [part for fan_in, fan_out in pairwise(widths) for part in (nn.Linear(fan_in, fan_out), nn.ReLU())]
        self.rest = nn.ModuleDict({"deep": nn.Sequential(*hidden, nn.Linear(widths[-1], 1))})
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids: Any, values: Any) -> Any:
        rows = self.table(ids) * values.unsqueeze(-1)
        embeddings = rows[..., 1:]
        total = embeddings.sum(1)
        pairs = 0.5 * (total * total - (embeddings * embeddings).sum(1)).sum(1)
        return self.bias + rows[..., 0].sum(1) + pairs + self.rest["deep"](embeddings.flatten(1)).squeeze(1)


def main() -> None:
    parser = peer_parser()
    parser.add_argument("--variant", choices=("one_table", "dense"), default="one_table")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    size, train_rows, test_rows = read_rows(arguments.rows)
    ids, values, labels = map(torch.from_numpy, train_rows)
    test = [torch.from_numpy(part) for part in test_rows]
    sparse = arguments.variant == "one_table"
    model = DeepFM(size, ids.shape[1], sparse)
    run: Any = model if sparse else torch.compile(model)
    rest = [*model.rest.parameters(), model.bias]
    if arguments.optimizer == "adagrad":
        optimizers: list[Any] = [torch.optim.Adagrad(model.parameters(), lr=arguments.rate, initial_accumulator_value=0.1)]
    elif sparse:
        optimizers = [torch.optim.SparseAdam([model.table.weight], lr=arguments.rate), torch.optim.Adam(rest, lr=arguments.rate)]
    else:
        optimizers = [torch.optim.Adam(model.parameters(), lr=arguments.rate, fused=True)]
    loss_of = nn.BCEWithLogitsLoss()
    batches, warmup, steps = lengths(arguments, len(labels))

    def train(first: int, count: int) -> float:
        value = torch.zeros(())
        for step in range(first, first + count):
            rows = slice(step % batches * arguments.batch, (step % batches + 1) * arguments.batch)
            value = loss_of(run(ids[rows], values[rows]), labels[rows])
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            value.backward()
            for optimizer in optimizers:
                optimizer.step()
        return float(value)

    train(0, warmup)
    begin = time.perf_counter()
    train(warmup, steps)
    rate = steps * arguments.batch / (time.perf_counter() - begin)
    with torch.no_grad():
        scores = [model(*(part[start : start + 4096] for part in test)).numpy() for start in range(0, len(test[0]), 4096)]
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"examples_per_s": rate, "scores": np.concatenate(scores).tolist()}, file)


if __name__ == "__main__":
    main()
