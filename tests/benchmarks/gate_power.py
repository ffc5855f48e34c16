"""How often a gate that asks for the interval's lower end lets a model pass which it should not, and one which it should.

    python tests/benchmarks/gate_power.py [--evaluations 200] [--rows 20000] [--clicks 0.1] [--auc 0.75] [--confidence 0.95]

Champion and challenger score the same rows: within each class their scores are normal and correlated, clicks are shifted, so that
the true AUC of each is known exactly, Phi(shift / sqrt 2). A gate with margin m promotes when the difference is above -m with the
confidence. False promotions are those of a challenger that is worse by just m: at most 1 - confidence of them may pass.
"""

import argparse
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from components.evaluate.comparison import Difference, auc_difference
from components.evaluate.ranking import Scores, ranked

MARGINS = (0.0, 0.002, 0.01)
# Of the scores of two models of neighbouring days.
CORRELATION = 0.95


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Rows whose champion has this true AUC and whose challenger differs from it by just `difference`."""

    rows: int = 20_000
    clicks: float = 0.1
    auc: float = 0.75
    difference: float = 0.0

    def draw(self, random: np.random.Generator) -> tuple[NDArray[np.float64], Scores, Scores]:
        """Labels, and the scores of challenger and champion."""
        labels = (random.random(self.rows) < self.clicks).astype(np.float64)
        champion = random.normal(size=self.rows)
        challenger = CORRELATION * champion + (1 - CORRELATION**2) ** 0.5 * random.normal(size=self.rows)
        shifts = [2**0.5 * NormalDist().inv_cdf(auc) for auc in (self.auc + self.difference, self.auc)]
        both = [1 / (1 + np.exp(-(drawn + shift * labels))) for drawn, shift in zip((challenger, champion), shifts, strict=True)]
        return labels, both[0].astype(np.float32), both[1].astype(np.float32)

    def evaluate(self, random: np.random.Generator, confidence: float) -> Difference:
        """The difference with the two-sided interval whose lower end holds alone with `confidence`."""
        labels, ours, theirs = self.draw(random)
        parts = [[(ours[labels == each], theirs[labels == each])] for each in (1.0, 0.0)]
        found = auc_difference(ranked(labels, ours), ranked(labels, theirs), *parts, 2 * confidence - 1)
        assert found is not None, "rows of both classes are drawn"
        return found


def promotions(planted: Planted, margin: float, evaluations: int, confidence: float, seed: int) -> int:
    """How many of so many evaluations end with a promotion."""
    random = np.random.default_rng(seed)
    return sum(planted.evaluate(random, confidence).low > -margin for _ in range(evaluations))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--clicks", type=float, default=0.1)
    parser.add_argument("--auc", type=float, default=0.75)
    parser.add_argument("--confidence", type=float, default=0.95)
    given = parser.parse_args()
    chance = 1 - given.confidence
    allowed = chance + 3 * (chance * given.confidence / given.evaluations) ** 0.5
    print("| margin = difference | worse by it: promoted (false) | equally good: promoted | better by it: promoted |")
    print("|---|---|---|---|", flush=True)
    for line, margin in enumerate(MARGINS):
        passed = [
            promotions(
                Planted(rows=given.rows, clicks=given.clicks, auc=given.auc, difference=difference),
                margin,
                given.evaluations,
                given.confidence,
                # Other rows for each figure, so that none repeats the luck of another.
                3 * line + place,
            )
            for place, difference in enumerate((-margin, 0.0, margin))
        ]
        print(f"| {margin:g} | " + " | ".join(f"{each / given.evaluations:.1%}" for each in passed) + " |", flush=True)
        if passed[0] / given.evaluations > allowed:
            raise SystemExit(f"margin {margin:g}: more false promotions than chance explains ({allowed:.1%} at most)")
    print(f"declared: at most {chance:.1%} false promotions, up to {allowed:.1%} among {given.evaluations} by chance")


if __name__ == "__main__":
    main()
