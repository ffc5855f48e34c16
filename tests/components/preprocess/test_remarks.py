"""What a person is warned of: values that look like codes or are out of all range, through the whole step, and nothing sane."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.preprocess.codes import ValueCodes
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess

DRAW = np.random.default_rng(1)
CODES = (
    "values of 1 field (1) look like category codes, many different whole numbers from 1000 on; a code belongs into the id, "
    "with value 1, and numbers are scaled, such as by log"
)


def warnings_of(folder: Path, value: Callable[[int], float], **settings: Any) -> list[str]:
    """Of 400 rows, whose second field has these values."""
    (folder / "in").write_text("".join(f"{n % 2} {n}:1 400:{value(n):.9g}\n" for n in range(400)))
    config = PreprocessConfig(**{"format": "libsvm", "feature_size": 401, **settings})
    return list(preprocess(config, [str(folder / "in")], folder / "out", folder / "report.html").warnings)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda n: 1000 + 48_271 * n % 99_991, CODES),
        (lambda n: 1000 + 48_271 * n % 99_991 if n % 5 else 0, CODES),
        (lambda n: n % 7, ""),
        (lambda n: np.log1p(100_003 * n), ""),
        # The largest value that is let pass, and the smallest that is not.
        (lambda n: 1000 if n == 3 else 0.5, ""),
        (lambda n: -1000.5 if n == 3 else 0.5, "values are from -1000.5 to 1: what is beyond 1000 drowns all other fields"),
        # Few different ones, or no whole ones, are numbers in a large unit.
        (lambda n: 1000 * (1 + n % 9), "values are from 1 to 9000: "),
        (lambda n: 1000.25 + n, "values are from 1 to 1399.25: "),
    ],
    ids=["codes", "codes and zeros", "small", "logarithms", "one of 1000", "one beyond", "thousands", "fractions"],
)
def test_values_that_are_no_sensible_numbers(tmp_path: Path, value: Callable[[int], float], said: str) -> None:
    found = warnings_of(tmp_path, value)
    assert len(found) == bool(said)
    assert all(warning.startswith(said) for warning in found)


def test_codes_are_seen_by_any_process_and_of_the_first_rows_of_each_part() -> None:
    codes = DRAW.integers(1000, 10**9, (2000, 1)).astype(np.float32)
    numbers = DRAW.normal(size=(2000, 1)).astype(np.float32)
    values = np.concatenate([numbers, codes, np.zeros_like(codes)], axis=1)
    parts = [ValueCodes(3) for _ in range(3)]
    for part, rows in zip(parts, np.array_split(values, 3), strict=True):
        part.add(rows[:40])
    assert [part.fields() for part in parts] == [[], [], []], "40 different ones are few"
    for part in parts[1:]:
        parts[0].merge(part)
    assert parts[0].fields() == [1]
    parts[0].add(numbers.repeat(3, axis=1))
    assert parts[0].fields() == [], "most values of the field are no codes"
