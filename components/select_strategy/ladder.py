"""The ladder: from measurements to a plan and the reasons for it. Pure; the step runs what is to be measured.

input keeps up?  ->  best threads of one process  ->  does one process fill the machine?  ->  race of the best of each kind
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.errors import InvalidConfig
from components.plan import STRATEGIES, Plan, Rung, Strategy
from components.profile import FULL, INPUT_HEADROOM, NOISE, Probe, Profile, fastest
from components.select_strategy.advice import is_stale
from components.select_strategy.cost_model import Candidate, candidates, obstacle, shortlist, single_candidate
from components.select_strategy.race import Runner


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A candidate and the real job that it ran; with `jobs` > 1 the probe's rate is their mean.

    worse: how its loss compares, where that is clearly worse than the single process's, which bars it; else empty.
    """

    candidate: Candidate
    probe: Probe
    jobs: int = 1
    worse: str = ""


def leader(race: Sequence[Measured]) -> Measured:
    """Who wins the race: the single process, unless a challenger is faster by more than noise.

    Args:
        race: the single process first, then its challengers. More workers must win by more than noise, for they cost more to run.
    """
    single = race[0]
    if single.candidate.strategy != "single":
        raise InvalidConfig(f"race: the first entry must be the single process, not {single.candidate.strategy}")
    winner = single
    for challenger in race[1:]:
        bar = max(single.probe.examples_per_s * (1 + NOISE), winner.probe.examples_per_s)
        if challenger.probe.examples_per_s > bar and not challenger.worse:
            winner = challenger
    return winner


def measured(runner: Runner) -> Measured:
    """All jobs of a candidate as one measurement."""
    low, high = runner.interval
    probe = replace(runner.heats[-1].probe, examples_per_s=runner.rate, rate_low=max(low, 0.0), rate_high=high)
    return Measured(candidate=runner.candidate, probe=probe, jobs=len(runner.heats), worse=runner.worse)


def select(profile: Profile, race: Sequence[Measured]) -> Plan:
    """The winner's plan with all rungs; `race` as `leader` takes it."""
    winner, single, challengers = leader(race), race[0], race[1:]
    rungs = (
        *_single_process_rungs(profile, single.candidate),
        *(_race_rung(challenger, single) for challenger in challengers),
        *_obstacle_rungs(profile),
        _choice_rung(winner, [entry for entry in race if entry is not winner]),
        _more_machines_rung(winner.probe),
    )
    plan = winner.candidate.plan(profile.settings)
    return replace(plan, measured_examples_per_s=winner.probe.examples_per_s, rungs=rungs)


def forced(profile: Profile, strategy: Strategy) -> Plan:
    """The plan of the best predicted candidate of the strategy that a person demands; nothing is raced.

    Raises:
        InvalidConfig: that strategy cannot run with these settings.
    """
    chosen = next((candidate for candidate in shortlist(candidates(profile)) if candidate.strategy == strategy), None)
    if chosen is None:
        raise InvalidConfig(f"strategy {strategy}: {obstacle(profile, strategy)}")
    single = single_candidate(profile)
    rung = Rung(
        name="strategy",
        decision=f"{chosen}, because it was demanded",
        measured=f"predicted {_at_most(chosen)}, not raced",
        beat="nothing: no other strategy was tried" if strategy == "single" else f"not compared with {single}",
        passed=True,
    )
    measured = chosen.predicted_examples_per_s if strategy == "single" else None
    return replace(
        chosen.plan(profile.settings), measured_examples_per_s=measured, rungs=(*_single_process_rungs(profile, single), rung)
    )


def _at_most(candidate: Candidate) -> str:
    return f"at most {candidate.predicted_examples_per_s:,.0f} examples/s ({candidate.basis})"


def _single_process_rungs(profile: Profile, single: Candidate) -> tuple[Rung, ...]:
    both = profile.of_kind("both")
    chosen = next(probe for probe in both if probe.threads == single.threads)
    return _input_rung(profile), _threads_rung(both, chosen), _full_rung(chosen)


def _input_rung(profile: Profile) -> Rung:
    source, compute = fastest(profile.of_kind("input")).examples_per_s, fastest(profile.of_kind("compute")).examples_per_s
    keeps_up = source >= compute * INPUT_HEADROOM
    return Rung(
        name="input",
        decision="leave the input pipeline as it is" if keeps_up else "mend the input pipeline before adding workers",
        measured=f"input alone {source:,.0f} examples/s, compute alone {compute:,.0f}: {source / compute:.1f} times",
        beat=f"a bar of {INPUT_HEADROOM:g} times" if keeps_up else "nothing: no other input mode was tried",
        passed=keeps_up,
    )


def _threads_rung(both: Sequence[Probe], chosen: Probe) -> Rung:
    others = [probe for probe in both if probe is not chosen]
    beaten = "; ".join(f"{probe.threads}: {probe.examples_per_s:,.0f}" for probe in others)
    return Rung(
        name="threads",
        decision=str(chosen.threads),
        measured=f"{chosen.examples_per_s:,.0f} examples/s in one process; other settings need {NOISE:.0%} more to be chosen",
        beat=beaten or "nothing: no other setting was tried",
        passed=True,
    )


def _full_rung(chosen: Probe) -> Rung:
    full = chosen.utilization >= FULL
    if not chosen.cpu_percent_per_core:
        use, decision = "CPU use was not sampled", "several workers are tried"
    else:
        use = f"{chosen.utilization:.0%} of {chosen.usable_cpus:g} CPUs busy, {FULL:.0%} is full"
        decision = (
            "one process fills this machine; more workers have no idle CPU to win"
            if full
            else "one process leaves CPUs idle that several workers could use"
        )
    return Rung(name="utilization", decision=decision, measured=use, beat="", passed=full)


def _race_rung(challenger: Measured, single: Measured) -> Rung:
    rate, base = challenger.probe.examples_per_s, single.probe.examples_per_s
    wins = rate > base * (1 + NOISE) and not challenger.worse
    stale = (
        " Its updates are asynchronous: examples/s, not learning an example, are compared."
        if wins and is_stale(challenger.candidate.strategy, challenger.candidate.hosts)
        else ""
    )
    return Rung(
        name=challenger.candidate.strategy,
        decision=f"{challenger.candidate} is {'faster' if wins else 'not faster'} than one process.{stale}"
        if not challenger.worse
        else f"{challenger.candidate}: {challenger.worse}",
        measured=(
            f"{rate:,.0f} examples/s, {rate / base:.2f} times one process's {base:,.0f}; "
            f"predicted {_at_most(challenger.candidate)}{_communication(challenger.probe)}"
        ),
        beat=f"one process, {base:,.0f} examples/s" if wins else "",
        passed=wins,
    )


def _communication(probe: Probe) -> str:
    return "" if probe.communication_share is None else f"; {probe.communication_share:.0%} of a step communicating"


def _obstacle_rungs(profile: Profile) -> tuple[Rung, ...]:
    reasons = ((strategy, obstacle(profile, strategy)) for strategy in STRATEGIES)
    return tuple(
        Rung(name=strategy, decision=f"{strategy} cannot run here", measured=reason, beat="", passed=False)
        for strategy, reason in reasons
        if reason is not None
    )


def _choice_rung(winner: Measured, losers: Sequence[Measured]) -> Rung:
    where = "a real job" if winner.jobs == 1 else f"{winner.jobs} real jobs"
    return Rung(
        name="choice",
        decision=str(winner.candidate),
        measured=f"{winner.probe.examples_per_s:,.0f} examples/s in {where}",
        beat="; ".join(f"{loser.candidate}: {loser.probe.examples_per_s:,.0f}" for loser in losers) or "nothing else was tried",
        passed=True,
    )


def _more_machines_rung(probe: Probe) -> Rung:
    full = probe.utilization >= FULL
    return Rung(
        name="more machines",
        decision="a larger instance is worth trying, before several" if full else "fill this machine before paying for more",
        measured=f"{probe.utilization:.0%} of {probe.usable_cpus:g} CPUs busy; other machines were not tried",
        beat="",
        passed=False,
    )
