"""A model on the bench: its weights read bit by bit, its SavedModel called with rows of which the evaluation knows the scores.

Array suffixes: B rows, F fields.
"""

import hashlib
import statistics
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from components.errors import NotPromotable
from components.evaluation import Evaluation
from components.model_files import MODEL_JSON, ModelCard, Scorer, load_scorer, model_digest, transform_problem

WEIGHTS = "weights.npz"
_BLOCK_BYTES = 1 << 20
_WARM_UP_CALLS = 3
_CALLS = 15


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What the gate must know of the model beside its evaluation.

    `stated_checksum` is what the ranks agreed on, `found_checksum` that of the weights as they are. `not_finite` names arrays with
    NaN or infinity in them. `score_difference` is the largest between SavedModel and evaluation over `sampled` rows, relative to
    the score. `transform` says how the transform differs from the dataset's; empty when it does not, or no dataset was given.
    """

    model_digest: str
    data_digest: str
    rank: int
    world_size: int
    ranks_agreed: bool
    stated_checksum: str
    found_checksum: str
    not_finite: tuple[str, ...]
    sampled: int
    score_difference: float
    transform: str
    bytes: int
    one_row_ms: float
    thousand_rows_ms: float


def inspect_model(model: Path, card: ModelCard, evaluation: Evaluation, dataset: Path | None) -> Candidate:
    """Everything that the technical rules ask for; takes TensorFlow's start and some dozens of calls.

    Raises:
        NotPromotable: weights.npz is not there or damaged, or TensorFlow cannot load or call the model.
    """
    import tensorflow as tf  # seconds of import, and loaded by load_scorer anyhow

    checksum, not_finite = read_weights(model / WEIGHTS)
    scorer = load_scorer(model)
    fits = all(len(row.ids) == len(row.values) == card.field_size for row in evaluation.sample)
    sample = evaluation.sample if fits else ()
    ids_BF, values_BF = (np.array([getattr(row, name) for row in sample]) for name in ("ids", "values"))
    if not sample:
        ids_BF, values_BF = np.full((1, card.field_size), card.id_base), np.ones((1, card.field_size))
    try:
        scores_B = scorer(ids_BF, values_BF)
        one_row_ms, thousand_rows_ms = (_median_ms(scorer, ids_BF, values_BF, rows) for rows in (1, 1000))
    except (tf.errors.OpError, TypeError, ValueError) as error:
        raise NotPromotable(f"{model}: cannot be called ({str(error).splitlines()[0][:200]}); train again") from error
    return Candidate(
        model_digest=model_digest(model),
        data_digest=card.data_digest,
        rank=card.rank,
        world_size=card.world_size,
        ranks_agreed=card.ranks_agreed,
        stated_checksum=card.parameter_checksum,
        found_checksum=checksum,
        not_finite=not_finite,
        sampled=len(sample),
        score_difference=_largest_difference(scores_B, np.array([row.score for row in sample])) if sample else 0.0,
        transform=transform_problem(card, dataset) if dataset else "",
        bytes=sum(file.bytes for file in card.files) + (model / MODEL_JSON).stat().st_size,
        one_row_ms=one_row_ms,
        thousand_rows_ms=thousand_rows_ms,
    )


def read_weights(path: Path) -> tuple[str, tuple[str, ...]]:
    """SHA-256 of all weights in their order, as the training states it in model.json, and names of arrays that are not finite.

    The arrays are read in blocks: a table may be larger than memory.
    """
    digest, not_finite = hashlib.sha256(), []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    finite = True
                    for part in _parts(file):
                        digest.update(part.data)
                        finite = finite and bool(np.isfinite(part).all())
                if not finite:
                    not_finite.append(name.removesuffix(".npy"))
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise NotPromotable(f"{path}: cannot be read ({error}); train again") from error
    return digest.hexdigest(), tuple(not_finite)


def _parts(file: IO[bytes]) -> Iterator[NDArray[Any]]:
    """An array of a .npy file in rows' order, a block at a time."""
    version = npy.read_magic(file)
    shape, fortran, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("objects in it")
    if fortran and len(shape) > 1:
        content = np.frombuffer(file.read(), dtype).reshape(shape, order="F")
        yield np.ascontiguousarray(content)
        return
    while block := file.read(_BLOCK_BYTES // dtype.itemsize * dtype.itemsize):
        yield np.frombuffer(block, dtype)


def _largest_difference(scores_B: NDArray[np.float64], expected_B: NDArray[np.float64]) -> float:
    """Relative to the score; infinite where a score is no number."""
    difference_B = np.abs(scores_B - expected_B) / np.maximum(np.abs(expected_B), 1e-6)
    return float(np.where(np.isfinite(difference_B), difference_B, np.inf).max())


def _median_ms(scorer: Scorer, ids_BF: NDArray[Any], values_BF: NDArray[Any], rows: int) -> float:
    """Of calls with so many rows, after those that make TensorFlow trace and allocate."""
    ids, values = (np.resize(array, (rows, array.shape[1])) for array in (ids_BF, values_BF))
    seconds = []
    for call in range(_WARM_UP_CALLS + _CALLS):
        start = time.perf_counter()
        scorer(ids, values)
        if call >= _WARM_UP_CALLS:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e3
