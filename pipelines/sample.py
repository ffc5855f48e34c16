"""Built-in sample data: raw Criteo-shaped click logs from a planted model, so that the best reachable AUC is known.

A row is a label, 13 counts with gaps and heavy tails, and 26 hashed categories of power-law popularity, separated by tabs.
The click probability is a logistic function of linear terms of the counts' logarithms, linear terms of the categories, and
products of hidden vectors of a few pairs of categories, which is what a DeepFM can learn. Rare categories carry little of it.

The planted model is always the same; the seed draws the rows, so two seeds are two days of one world.

Array suffixes: B rows, C counts, F category fields, K values of one field.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.evaluate.metrics import exact_auc
from components.evaluate.ranking import ranked
from components.storage import write_json_atomic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CLICK_RATE = 0.25
BEST_AUC = 0.80
# Below this a file could by chance hold clicks only, or none.
SMALLEST_ROWS = 100
CHUNK_ROWS = 50_000
_WORLD_SEED = 20_140_624

# One row a count: mean and spread of the logarithm, what is taken off, share of gaps. Close to the public Criteo sample; the
# second count is the one that goes below zero there too.
_COUNTS = np.array(
    [
        (0.4, 1.5, 0, 0.45),
        (1.6, 2.6, 2, 0.00),
        (1.8, 1.5, 0, 0.22),
        (1.5, 1.1, 0, 0.21),
        (8.0, 2.2, 0, 0.04),
        (3.8, 1.8, 0, 0.24),
        (1.3, 1.7, 0, 0.04),
        (2.1, 1.4, 0, 0.00),
        (3.85, 1.6, 0, 0.04),
        (-0.3, 0.8, 0, 0.45),
        (0.6, 1.1, 0, 0.04),
        (-0.3, 1.2, 0, 0.77),
        (1.7, 1.3, 0, 0.21),
    ]
)
# Distinct categories of the 26 fields of Criteo's display advertising data (public figures), the largest cut to 12,000.
_CARDINALITIES = (
    1460, 583, 12000, 12000, 305, 24, 12000, 633, 3, 12000, 5683, 12000, 3194,
    27, 12000, 12000, 10, 5652, 2173, 4, 12000, 18, 15, 12000, 105, 12000,
)  # fmt: skip
_CATEGORY_GAPS = {
    2: 0.03,
    3: 0.03,
    5: 0.12,
    11: 0.03,
    15: 0.03,
    18: 0.45,
    19: 0.45,
    20: 0.03,
    21: 0.76,
    23: 0.03,
    24: 0.45,
    25: 0.45,
}
# Shares of the variance of the planted score: counts, categories, pairs of categories.
_COUNT_SHARE, _CATEGORY_SHARE, _PAIR_SHARE = 0.66, 0.28, 0.06
_PAIRS = ((5, 8), (8, 13), (13, 16), (16, 19), (5, 22), (8, 22))
_HIDDEN = 3


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was written. `best_auc` is the AUC of the planted probabilities on these labels: no model can expect more."""

    rows: int
    clicks: int
    seed: int
    best_auc: float


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Drawn rows before they get labels: counts [B, C] with their gaps, and popularity ranks [B, F], 0 being a gap."""

    counts: Integers
    gaps: NDArray[np.bool_]
    categories: Integers


class PlantedModel:
    """Popularity of the categories, and the click probability of a row. Always the same one."""

    def __init__(self) -> None:
        random = np.random.default_rng(_WORLD_SEED)
        self.popularity = [_popularity(size, random.uniform(1.1, 1.5)) for size in _CARDINALITIES]
        self.count_weights = random.choice((-1.0, 1.0), len(_COUNTS)) * random.uniform(0.5, 1.5, len(_COUNTS))
        # Rank 0 is the gap. Effects fade with rank: what is seen a few times only cannot be learnt by anybody.
        self.weights = [random.normal(size=size + 1) * _fading(size) for size in _CARDINALITIES]
        self.hidden = [random.normal(size=(size + 1, _HIDDEN)) * _fading(size)[:, None] for size in _CARDINALITIES]
        self.means, self.scales = np.zeros(3), np.ones(3)
        reference = self.draw(random, CHUNK_ROWS)
        parts = self._parts(reference)
        self.means, self.scales = parts.mean(axis=0), parts.std(axis=0)
        self.slope, self.bias = _calibrate(self._score(reference))

    def draw(self, random: np.random.Generator, rows: int) -> Rows:
        """Rows without labels."""
        mean_C, spread_C, taken_off_C, gap_C = _COUNTS.T
        counts = np.floor(np.exp(mean_C + spread_C * random.standard_normal((rows, len(_COUNTS))))) - taken_off_C
        categories = np.empty((rows, len(_CARDINALITIES)), np.int64)
        for field, cumulative_K in enumerate(self.popularity):
            drawn = 1 + np.searchsorted(cumulative_K, random.random(rows), side="right").clip(max=len(cumulative_K) - 1)
            categories[:, field] = np.where(random.random(rows) < _CATEGORY_GAPS.get(field, 0.0), 0, drawn)
        return Rows(counts=counts.astype(np.int64), gaps=random.random((rows, len(_COUNTS))) < gap_C, categories=categories)

    def probabilities(self, rows: Rows) -> Floats:
        """Planted click probability of each row: float64 [B]."""
        return _sigmoid(self.slope * self._score(rows) + self.bias)

    def _score(self, rows: Rows) -> Floats:
        """Sum of the three parts, each scaled to its share of the variance: float64 [B]."""
        shares = np.sqrt((_COUNT_SHARE, _CATEGORY_SHARE, _PAIR_SHARE))
        score: Floats = (self._parts(rows) - self.means) / self.scales @ shares
        return score

    def _parts(self, rows: Rows) -> Floats:
        """What counts, categories and pairs of categories contribute: float64 [B, 3]."""
        mean_C, spread_C, _, _ = _COUNTS.T
        logarithms = np.sign(rows.counts) * np.log1p(np.abs(rows.counts))
        counts = np.where(rows.gaps, 0.0, (logarithms - mean_C) / spread_C) @ self.count_weights
        categories = sum(weights_K[rows.categories[:, field]] for field, weights_K in enumerate(self.weights))
        pairs = sum(
            (self.hidden[one][rows.categories[:, one]] * self.hidden[other][rows.categories[:, other]]).sum(axis=1)
            for one, other in _PAIRS
        )
        return np.stack((counts, categories, pairs), axis=1)


def write_sample(out: Path, rows: int, seed: int) -> Sample:
    """Write `rows` rows to `out`, and what is known of them to `<out>.json`; each file appears whole or not at all.

    Raises:
        InvalidConfig: fewer than SMALLEST_ROWS rows, a negative seed, or `out` is a folder.
    """
    if rows < SMALLEST_ROWS:
        raise InvalidConfig(f"rows {rows}: at least {SMALLEST_ROWS} are needed, fewer might hold no click")
    if seed < 0:
        raise InvalidConfig(f"seed {seed}: must not be negative")
    if out.is_dir():
        raise InvalidConfig(f"{out}: is a folder; name a file, as {out / 'clicks.tsv'}")
    model, random = PlantedModel(), np.random.default_rng(seed)
    labels, probabilities = np.empty(rows), np.empty(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii", newline="\n") as file:
            tokens = [_tokens(field, size) for field, size in enumerate(_CARDINALITIES)]
            for start in range(0, rows, CHUNK_ROWS):
                drawn = model.draw(random, min(CHUNK_ROWS, rows - start))
                chunk = slice(start, start + CHUNK_ROWS)
                probabilities[chunk] = model.probabilities(drawn)
                labels[chunk] = random.random(len(probabilities[chunk])) < probabilities[chunk]
                file.writelines(_lines(labels[chunk], drawn, tokens))
        best_auc = exact_auc(ranked(labels, probabilities))
        if best_auc is None:
            raise InvalidConfig(f"rows {rows}, seed {seed}: clicks only, or none; ask for more rows")
        sample = Sample(rows=rows, clicks=int(labels.sum()), seed=seed, best_auc=best_auc)
        os.chmod(name, 0o644)
        os.replace(name, out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    write_json_atomic(sample_facts(out), asdict(sample))
    return sample


def sample_facts(out: Path) -> Path:
    """Where the facts of a sample lie: rows, clicks, seed and best AUC as JSON."""
    return out.with_name(out.name + ".json")


def _lines(labels_B: Floats, rows: Rows, tokens: list[NDArray[np.object_]]) -> Iterator[str]:
    columns = [labels_B.astype(np.int64).astype(str).tolist()]
    for column in range(rows.counts.shape[1]):
        cells = np.array(list(map(str, rows.counts[:, column].tolist())), object)
        cells[rows.gaps[:, column]] = ""
        columns.append(cells.tolist())
    columns.extend(tokens_K[rows.categories[:, field]].tolist() for field, tokens_K in enumerate(tokens))
    return ("\t".join(cells) + "\n" for cells in zip(*columns, strict=True))


def _tokens(field: int, size: int) -> NDArray[np.object_]:
    """Text of each rank of a field: a gap, then 8 hex digits that no other rank or field has."""
    mixed = (np.arange(1, size + 1, dtype=np.uint64) + (field << 24)) & 0xFFFFFFFF
    # The finalizer of MurmurHash3: it maps 32 bits onto 32 bits one to one.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    mixed ^= mixed >> np.uint64(16)
    return np.array(["", *(f"{token:08x}" for token in mixed.tolist())], object)


def _popularity(size: int, exponent: float) -> Floats:
    """Cumulative power law over the ranks: float64 [K]."""
    cumulative: Floats = np.cumsum((np.arange(size) + 2.0) ** -exponent)
    cumulative /= cumulative[-1]
    return cumulative


def _fading(size: int) -> Floats:
    """Size of the effects by rank, the gap first: full for the first ten, then as one over the rank."""
    scale: Floats = np.minimum(1.0, 10.0 / np.arange(1, size + 2))
    return scale


def _sigmoid(score: Floats) -> Floats:
    probability: Floats = 1.0 / (1.0 + np.exp(-score))
    return probability


def _expected_auc(probabilities_B: Floats) -> float:
    """AUC of true probabilities, expected over the draw of the labels."""
    ascending = np.sort(probabilities_B)
    misses = 1.0 - ascending
    below = np.cumsum(misses) - misses / 2
    return float((ascending * below).sum() / (ascending.sum() * misses.sum()))


def _calibrate(score_B: Floats) -> tuple[float, float]:
    """Slope and bias that give CLICK_RATE and BEST_AUC on these scores, by bisection."""

    def bias_for(slope: float) -> float:
        low, high = -30.0, 30.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if _sigmoid(slope * score_B + middle).mean() < CLICK_RATE else (low, middle)
        return low

    low, high = 0.0, 10.0
    for _ in range(20):
        slope = (low + high) / 2
        reached = _expected_auc(_sigmoid(slope * score_B + bias_for(slope)))
        low, high = (slope, high) if reached < BEST_AUC else (low, slope)
    return low, bias_for(low)
