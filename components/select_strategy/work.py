"""What a training step has to do, counted from the model and the data. No machine is in it.

Counts are of DeepFM and its relatives as components/train/program computes them; a model of one's own is taken for a DeepFM with
these layers, and only measurements can tell better.
"""

from dataclasses import dataclass
from itertools import pairwise

from components.learning import Learning
from components.manifest import Manifest
from components.traffic import WAITS, Placement, ring_bytes, table_bytes

# Numbers kept for each weight, the weight included: what the optimizers accumulate (Kingma 2015, Duchi 2011, McMahan 2013).
_STORED = {"adam": 3, "adagrad": 2, "ftrl": 3, "momentum": 2, "sgd": 1}


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training's work by example and by step.

    Attributes:
        cells: numbers of embedding rows and linear weights that an example touches.
        products: floating-point operations of matrix products an example, forward and backward.
        dense_parameters: those that every step updates and all workers exchange.
        row_parameters: of a row of the table. table_bytes: the table with the optimizer's slots.
        shards: how many train shards there are.
    """

    fields: int
    cells: int
    products: float
    dense_parameters: int
    table_rows: int
    row_parameters: int
    table_bytes: float
    distinct_ids_by_field: tuple[int, ...]
    train_examples: int
    epochs: int
    shards: int = 1

    def distinct_ids(self, batch_size: int) -> float:
        """Distinct ids of a batch, were a field's ids equally frequent: the most that can be expected.

        Real ids are not, so there are fewer: of 1024 rows of Criteo's shape 7.1 a row (tests/benchmarks/README.md).
        """
        return sum(count * (1 - (1 - 1 / count) ** batch_size) for count in self.distinct_ids_by_field if count)

    def placement(self, ranks: int, batch_size: int, memory_bytes: float) -> Placement:
        """Where ranks on several hosts would have the table: what costs least among what fits, as the training program decides."""
        if self.table_bytes > 0.4 * memory_bytes:
            return "sharded"
        sent = self._table_bytes(ranks, batch_size)
        return min(sent, key=lambda name: sent[name] + 500_000 * WAITS[name])

    def dense_bytes(self, ranks: int) -> float:
        """What a rank of Horovod sends in a step for dense gradients."""
        return ring_bytes(ranks=ranks, numbers=self.dense_parameters)

    def row_bytes(self, ranks: int, batch_size: int, placement: Placement) -> float:
        """What a rank of Horovod sends in a step for the table; nothing where it is shared on one host."""
        return self._table_bytes(ranks, batch_size).get(placement, 0.0)

    def server_dense_bytes(self) -> float:
        """Dense weights and their gradients, between a worker and its parameter servers in a step."""
        return 8.0 * self.dense_parameters

    def server_row_bytes(self, batch_size: int) -> float:
        """Ids, rows and gradients, between a worker and its parameter servers in a step."""
        return 4.0 * self.distinct_ids(batch_size) * (1 + 2 * self.row_parameters)

    def _table_bytes(self, ranks: int, batch_size: int) -> dict[Placement, float]:
        ids = self.distinct_ids(batch_size)
        return table_bytes(ranks=ranks, rows=self.table_rows, parameters=self.row_parameters, distinct_ids=ids)


def work_of(settings: Learning, manifest: Manifest) -> Work:
    """The work of these settings on this dataset."""
    fields, width = manifest.schema.field_size, settings.embedding_size
    inputs = fields * width
    layers = [(rows, columns) for rows, columns in pairwise((inputs, *settings.deep_layers, 1))] if settings.deep_layers else []
    if settings.model == "dcn_v2":
        rank = settings.cross_rank
        cross = [(inputs, rank), (rank, inputs)] if rank else [(inputs, inputs)]
        layers += cross * settings.cross_layers
    weights = sum(rows * columns for rows, columns in layers)
    rows = manifest.schema.feature_size
    return Work(
        fields=fields,
        cells=fields * (width + 1),
        # A multiplication and an addition each, once forward and twice backward.
        products=6.0 * weights,
        dense_parameters=weights + sum(columns for _, columns in layers) + 1,
        table_rows=rows,
        row_parameters=width + 1,
        table_bytes=4.0 * rows * (width + 1) * _STORED[settings.optimizer],
        distinct_ids_by_field=manifest.statistics.distinct_ids_by_field,
        train_examples=manifest.train.examples,
        epochs=settings.epochs,
        shards=len(manifest.train.shards),
    )
