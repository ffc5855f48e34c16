"""The report of select_strategy: the ladder, the race, what was weighed, and how to choose otherwise."""

from collections.abc import Sequence

from components.manifest import Manifest
from components.plan import Plan, Ranked
from components.reports import Page
from components.select_strategy.climb import Climb
from components.select_strategy.cost_model import Candidate
from components.select_strategy.ladder import Measured
from components.select_strategy.options import Option, Situation


def page(
    plan: Plan,
    manifest: Manifest,
    every: Sequence[Candidate],
    race: Sequence[Measured],
    weighed: tuple[Climb, tuple[Option, ...], Situation] | None,
    command: str,
) -> Page:
    """The whole page. `command` is the ctrflow select that made the plan, without options."""
    rate = plan.measured_examples_per_s
    made = Page("Training strategy", f"{plan.summary()}{f': {rate:,.0f} examples/s measured' if rate else ''}")
    if rate:
        rows = manifest.train.examples
        made.paragraph(f"One epoch of {rows:,} examples takes about {rows / rate:,.1f} s at that speed, start-up not included.")
    if plan.rests_on_a_guess:
        made.warning(
            "The chosen machine, or the number of hosts, was not measured: the plan rests on a guess. Run a short training there."
        )
    made.section("The ladder, rung by rung")
    made.ladder("From the ground up", [(rung.name, rung.passed, rung.decision) for rung in plan.rungs])
    made.table(
        ["rung", "", "decision", "measured", "instead of"],
        [[rung.name, "yes" if rung.passed else "no", rung.decision, rung.measured, rung.beat or "–"] for rung in plan.rungs],
    )
    made.section("The race")
    if race:
        made.bars("Examples a second in real jobs", "examples/s", [(str(one.candidate), one.probe.examples_per_s) for one in race])
    else:
        made.warning(f"There was no race: {plan.strategy} was demanded.")
    if weighed:
        _machines(made, plan.ranking, weighed[2])
    made.section("Candidates and predictions")
    made.paragraph("Predictions for several workers are upper bounds: combining gradients is taken to cost nothing.")
    made.table(
        ["candidate", "predicted examples/s", "basis"],
        [[str(one), f"{one.predicted_examples_per_s:,.0f}", one.basis] for one in every],
    )
    made.section("To choose otherwise")
    made.paragraph("In a pipeline or a run the parameter `strategy` demands one; here a command makes the plan again:")
    for strategy in dict.fromkeys(one.strategy for one in every):
        if strategy != plan.strategy:
            made.paragraph(f"{command} --strategy {strategy}")
    return made


def _machines(made: Page, ranking: Sequence[Ranked], situation: Situation) -> None:
    """What was weighed, and how well the fit explains what was measured."""
    made.section("Time and cost")
    priced = sorted(((one.epoch_s, one.epoch_usd, one) for one in ranking if one.epoch_usd is not None), key=lambda each: each[:2])
    if priced:
        made.lines(
            "What an epoch takes and costs",
            "seconds",
            "USD",
            {
                "no other is faster and cheaper": [(time, cost) for time, cost, one in priced if one.frontier],
                "the others": [(time, cost) for time, cost, one in priced if not one.frontier],
            },
            loose=("the others",),
        )
    made.table(
        ["plan", "examples/s", "low", "high", "epoch s", "epoch USD", "frontier", "guess", "basis, or why it cannot be chosen"],
        [
            [
                one.description,
                f"{one.examples_per_s:,.0f}",
                f"{one.low:,.0f}",
                f"{one.high:,.0f}",
                f"{one.epoch_s:,.1f}",
                "–" if one.epoch_usd is None else f"{one.epoch_usd:.4f}",
                "yes" if one.frontier else "",
                "yes" if one.rests_on_a_guess else "",
                one.refused or one.basis,
            ]
            for one in ranking
        ],
    )
    made.paragraph("How far the fitted step times lie from the measured ones:")
    made.table(
        ["strategy", "residuals"],
        [[name, ", ".join(f"{one:+.0%}" for one in scaling.residuals)] for name, scaling in sorted(situation.scalings.items())],
    )
