"""profile.json: what probes measured of one machine; profile_utilization writes it, select_strategy reads it.

It is the settings, the probes, and what was found in them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from components.documents import checked_arguments, read_json, settings_of
from components.errors import InvalidConfig
from components.measurements import Finding, InputSettings, MachineUse
from components.plan import LOCAL, ModelSettings, ProbeKind, Threads
from components.storage import write_json_atomic

FORMAT_VERSION = 2

# Two short measurements closer than this are the same measurement.
NOISE = 0.05
# A machine is full at about this share of its CPUs (article, item 14).
FULL = 0.9
# Input must outrun compute by this much, else its ordinary variation already stalls steps.
INPUT_HEADROOM = 1.2


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a short job measured. `kind` says which part of a step ran; job_s is the whole job, start-up included.

    Of several probes that one job measured, the first has the job's time but for what the others measured. billable_s is the
    same of the seconds that are paid, of one host.

    rate_low to rate_high: 95 % confidence interval of examples_per_s; None where the measured part was too short for one.
    warmup_steps: of each worker, left out. bytes_per_step: what one worker sends in a step. parameter_server_share: of a step's
    time, waiting for parameter servers. Both None where unknown. rank_skew: how much longer than the mean worker the slowest
    one computed, 0 = all alike.
    """

    kind: ProbeKind
    strategy: str
    hosts: int
    workers_per_host: int
    batch_size: int
    threads: Threads
    examples_per_s: float
    step_p50_s: float
    step_p90_s: float
    step_p99_s: float
    input_wait_share: float | None
    compute_share: float | None
    communication_share: float | None
    cpu_percent_per_core: tuple[float, ...]
    rss_bytes: int
    usable_cpus: float
    usable_cpus_source: str
    job_name: str
    job_s: float
    rate_low: float | None = None
    rate_high: float | None = None
    warmup_steps: int = 0
    instance_type: str = LOCAL
    bytes_per_step: float | None = None
    parameter_server_share: float | None = None
    rank_skew: float | None = None
    outlier_share: float | None = None
    billable_s: float = 0.0
    input: InputSettings = field(default_factory=InputSettings)
    machine: MachineUse | None = None

    @property
    def busy_cores(self) -> float:
        """Cores' worth of CPU time in use, at most the usable ones; 0 when the probe was too short to sample.

        By this job where that is known: of several hosts only the first is sampled, and locally all are on one machine.
        """
        if self.machine is not None and self.hosts == 1:
            return min(self.machine.own_cpus, self.usable_cpus)
        return min(sum(self.cpu_percent_per_core) / 100, self.usable_cpus)

    def rate(self) -> str:
        """For a person: 97,501 examples/s (95 % interval 95,300 to 99,800)."""
        said = f"{self.examples_per_s:,.0f} examples/s"
        if self.rate_low is None or self.rate_high is None:
            return said
        return f"{said} (95 % interval {self.rate_low:,.0f} to {self.rate_high:,.0f})"

    @property
    def utilization(self) -> float:
        """Share of the usable cores that was busy, 0..1."""
        return self.busy_cores / self.usable_cpus


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The document profile.json.

    data_digest is the dataset's identity, `dataset` where it lay when it was profiled, probe_s the seconds each probe measured.
    `probes` are of one process, the batch of the settings and input as it is, those with different threads measured side by side;
    `scaling` of several workers; `trials` of one process with another batch or input, or with threads that lost before.
    overlap: the share of the shorter of reading and computing that prefetching hides behind the longer, 0..1; None where the
    shorter is lost in noise.
    expected_s and expected_usd were said before probing, cost_s and cost_usd are what it took: the step's time, all jobs' price.
    USD is None where the instance has no price.
    """

    data_digest: str
    dataset: str
    train_examples: int
    settings: ModelSettings
    probe_s: float
    probes: tuple[Probe, ...]
    scaling: tuple[Probe, ...] = ()
    trials: tuple[Probe, ...] = ()
    overlap: float | None = None
    findings: tuple[Finding, ...] = ()
    expected_s: float | None = None
    expected_usd: float | None = None
    cost_s: float | None = None
    cost_usd: float | None = None

    def of_kind(self, kind: ProbeKind) -> tuple[Probe, ...]:
        return tuple(probe for probe in self.probes if probe.kind == kind)


def fastest(probes: Sequence[Probe]) -> Probe:
    """The probe with the most examples a second; of equals the first.

    Raises:
        InvalidConfig: there is none.
    """
    if not probes:
        raise InvalidConfig("no probe of that kind in the profile; run ctrflow profile again")
    return max(probes, key=lambda probe: probe.examples_per_s)


_PROBES = ("probes", "scaling", "trials")


def write_profile(path: Path, profile: Profile) -> None:
    write_json_atomic(path, {"format_version": FORMAT_VERSION, **asdict(profile)})


def _probe(document: Mapping[str, Any], place: str) -> Probe:
    arguments = checked_arguments(Probe, document, place)
    threads = Threads(**checked_arguments(Threads, arguments["threads"], f"{place}.threads"))
    machine = arguments["machine"]
    probe = Probe(
        **{
            **arguments,
            "threads": threads,
            "input": settings_of(InputSettings, arguments["input"], f"{place}.input"),
            "machine": None if machine is None else settings_of(MachineUse, machine, f"{place}.machine"),
        }
    )
    if not (probe.examples_per_s > 0 and probe.usable_cpus > 0):
        raise InvalidConfig(f"{place}: {probe.examples_per_s} examples/s on {probe.usable_cpus} CPUs cannot have been measured")
    return probe


def read_profile(path: Path) -> Profile:
    """The profile of a file.

    Raises:
        InvalidConfig: missing, damaged, or of another version.
    """
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such profile; make one with ctrflow profile")
    try:
        document = read_json(path)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not valid JSON ({error}); run ctrflow profile again") from error
    if not isinstance(document, dict) or document.pop("format_version", None) != FORMAT_VERSION:
        raise InvalidConfig(f"{path}: format_version {FORMAT_VERSION} is expected; run ctrflow profile again")
    arguments = checked_arguments(Profile, document, str(path))
    for name in (*_PROBES, "findings"):
        if not isinstance(arguments[name], list):
            raise InvalidConfig(f"{path}: {name} must be a list; run ctrflow profile again")
    settings = checked_arguments(ModelSettings, arguments["settings"], f"{path}: settings")
    return Profile(
        **{
            **arguments,
            "settings": ModelSettings(**settings),
            **{name: tuple(_probe(one, f"{path}: {name}[{n}]") for n, one in enumerate(arguments[name])) for name in _PROBES},
            "findings": tuple(settings_of(Finding, each, f"{path}: findings") for each in arguments["findings"]),
        }
    )
