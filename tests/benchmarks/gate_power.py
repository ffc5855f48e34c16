"""How often promote's gate lets a model pass which it should not, and one which it should.

    python tests/benchmarks/gate_power.py [--evaluations 200] [--rows 20000] [--clicks 0.1] [--auc 0.75] [--confidence 0.95]

Champion and challenger score the same rows: within each class what they score by is normal and correlated, clicks are shifted, so
that the true AUC of each is known exactly, Phi(shift / sqrt 2), and their probabilities are calibrated. Figures and interval are
those of evaluate, the decision is gate()'s with all its rules. False promotions are those of a challenger that is worse by just the
margin: at most 1 - confidence of them may pass.
"""

import argparse
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from components.evaluate.comparison import auc_difference
from components.evaluate.metrics import measure, sums_of
from components.evaluate.ranking import Scores, ranked
from components.evaluation import ChampionScore, Evaluation
from components.promote.gate import InForce, Rule, gate
from components.promote.inspection import Candidate
from components.promote.policy import Policy

MARGINS = (0.0, 0.002, 0.01)
# Of the scores of two models of neighbouring days.
CORRELATION = 0.95
IN_FORCE = InForce(version=1, model_digest="c" * 64)
# A model that is what it says: only its scores are on trial here.
CANDIDATE = Candidate(
    model_digest="a" * 64,
    data_digest="d" * 64,
    rank=0,
    world_size=1,
    ranks_agreed=True,
    stated_checksum="5" * 64,
    found_checksum="5" * 64,
    not_finite=(),
    sampled=64,
    score_difference=0.0,
    transform="",
    bytes=1_000_000,
    one_row_ms=1.0,
    thousand_rows_ms=5.0,
)


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
        both = [self._probabilities(drawn, shift, labels) for drawn, shift in zip((challenger, champion), shifts, strict=True)]
        return labels, both[0], both[1]

    def _probabilities(self, drawn: NDArray[np.float64], shift: float, labels: NDArray[np.float64]) -> Scores:
        """By Bayes's rule, whose logit is linear in a normal number with the same spread in both classes."""
        logits = np.log(self.clicks / (1 - self.clicks)) + shift * (drawn + shift * labels) - shift**2 / 2
        return (1 / (1 + np.exp(-logits))).astype(np.float32)

    def evaluate(self, random: np.random.Generator) -> Evaluation:
        """What evaluate finds on rows drawn anew."""
        labels, ours, theirs = self.draw(random)
        rankings = [ranked(labels, each) for each in (ours, theirs)]
        found, of_champion = (
            measure(ranking, sums_of(labels, each)) for ranking, each in zip(rankings, (ours, theirs), strict=True)
        )
        parts = [[(ours[labels == each], theirs[labels == each])] for each in (1.0, 0.0)]
        difference = auc_difference(rankings[0], rankings[1], *parts, Evaluation.confidence)
        assert difference is not None, "rows of both classes are drawn"
        return Evaluation(
            rows=len(labels),
            positives=int(labels.sum()),
            click_rate=float(labels.mean()),
            auc=found.auc,
            auc_reason=found.auc_reason,
            log_loss=found.log_loss,
            log_loss_reason="",
            normalized_entropy=found.normalized_entropy,
            constant_log_loss=found.constant_log_loss,
            model_digest=CANDIDATE.model_digest,
            data_digest=CANDIDATE.data_digest,
            champion=ChampionScore(
                version=IN_FORCE.version,
                auc=of_champion.auc,
                auc_reason=of_champion.auc_reason,
                log_loss=of_champion.log_loss,
                auc_difference=difference.value,
                auc_low=difference.low,
                auc_high=difference.high,
                p_value=difference.p_value,
            ),
            warnings=(),
            roc=(),
            calibration=(),
            calibration_ratio=found.calibration_ratio,
        )


def decide(evaluation: Evaluation, margin: float, confidence: float) -> Rule:
    """The gate's rule on the champion, the only one that may keep it shut here: models refused for less would hide what it lets by.

    Raises:
        ValueError: another rule failed.
    """
    *others, against_champion = gate(CANDIDATE, evaluation, IN_FORCE, margin, Policy(confidence=confidence))
    if failed := [rule for rule in others if not rule.passed]:
        raise ValueError(f"gate refused for {failed[0].rule}: {failed[0].sentence}; plant more rows")
    return against_champion


def promotions(planted: Planted, margin: float, evaluations: int, confidence: float, seed: int) -> int:
    """How many of so many evaluations end with a promotion."""
    random = np.random.default_rng(seed)
    return sum(decide(planted.evaluate(random), margin, confidence).passed for _ in range(evaluations))


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
