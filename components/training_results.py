"""training.json: what a training job says about its own run; written by the training program, read by the steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.documents import read_json, settings_of
from components.errors import InvalidConfig, TrainingJobFailed
from components.measurements import MachineUse

TRAINING = "training.json"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The figures that steps decide with or show; the file itself holds more. Rates and shares leave out warm-up.

    examples_per_s counts the examples of all ranks. Shares are of a step's time, 0..1, None where
    a strategy cannot tell. cpu_percent_per_core has one entry a core
    of the machine, other processes included; it is empty, and the rate 0, when the run was too short. final_loss is None for a
    probe that learns nothing. rate_low to rate_high are a 95 % confidence interval of the rate, None with too few steps for one.
    outlier_share: of steps longer than the mean by 3 standard deviations. parts: what probe all measured after both, by kind.
    See components.probes.Probe for the others.
    """

    strategy: str
    world_size: int
    hosts: int
    workers_per_host: int
    batch_size: int
    steps: int
    examples: int
    startup_s: float
    train_s: float
    examples_per_s: float
    step_p50_s: float
    step_p90_s: float
    step_p99_s: float
    input_wait_share: float | None
    compute_share: float | None
    communication_share: float | None
    final_loss: float | None
    losses: tuple[tuple[int, float], ...]
    cpu_percent_per_core: tuple[float, ...]
    rss_bytes: int
    usable_cpus: float
    usable_cpus_source: str
    stopped_early: bool
    rate_low: float | None
    rate_high: float | None
    warmup_steps: int
    outlier_share: float
    parameter_server_share: float | None
    sent_bytes_per_step: float | None
    rank_skew: float | None
    encoding: str
    rows_cached: bool
    machine: MachineUse | None
    parts: Mapping[str, "TrainingResult"] = field(default_factory=dict)


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _numbers(document: dict[str, Any]) -> TrainingResult:
    step_time, loss = document["step_time_s"], document["final_loss"]
    return TrainingResult(
        strategy=str(document["strategy"]),
        world_size=int(document["world_size"]),
        hosts=int(document["hosts"]),
        workers_per_host=int(document["workers_per_host"]),
        batch_size=int(document["batch_size"]),
        steps=int(document["steps"]),
        examples=int(document["examples"]),
        startup_s=float(document["startup_s"]),
        train_s=float(document["train_s"]),
        examples_per_s=float(document["examples_per_s"]),
        step_p50_s=float(step_time["p50"]),
        step_p90_s=float(step_time["p90"]),
        step_p99_s=float(step_time["p99"]),
        input_wait_share=_optional(document["input_wait_share"]),
        compute_share=_optional(document["compute_share"]),
        communication_share=_optional(document["communication_share"]),
        final_loss=_optional(loss),
        losses=tuple((int(step), float(value)) for step, value in document["losses"]),
        cpu_percent_per_core=tuple(float(percent) for percent in document["cpu_percent_per_core"]),
        rss_bytes=int(document["rss_bytes"]),
        usable_cpus=float(document["usable_cpus"]),
        usable_cpus_source=str(document["usable_cpus_source"]),
        stopped_early=bool(document["stopped_early"]),
        rate_low=_optional(document["rate_low"]),
        rate_high=_optional(document["rate_high"]),
        warmup_steps=int(document["warmup_steps"]),
        outlier_share=float(document["outlier_share"]),
        parameter_server_share=_optional(document["parameter_server_share"]),
        sent_bytes_per_step=_optional(document["sent_bytes_per_step"]),
        rank_skew=_optional(document["rank_skew"]),
        encoding=str(document["encoding"]),
        rows_cached=bool(document["rows_cached"]),
        machine=None if document["machine"] is None else settings_of(MachineUse, document["machine"], "machine"),
        # A part has figures of its own, and the rest in common with the whole.
        parts={kind: _numbers({**document, **part, "parts": {}}) for kind, part in document["parts"].items()},
    )


def read_training_result(path: Path, *, job: str) -> TrainingResult:
    """The figures of a finished job.

    Raises:
        TrainingJobFailed: the job left no such file, or one without the figures, so nothing is known about its run.
    """
    if not path.is_file():
        raise TrainingJobFailed(f"{job}: completed without {path.name} in its output; rank 0 did not finish, see the job's log")
    try:
        return _numbers(read_json(path))
    except (AttributeError, InvalidConfig, KeyError, OverflowError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TrainingJobFailed(f"{job}: {path.name} is damaged or of another version ({reason}); rebuild the image") from error
