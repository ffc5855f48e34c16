"""What a training job costs, so far and at its end, and where its logs are; read from the service's description of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from components.instances import read_instances
from components.job_kinds import JobKind

# Phases in which machines are there and are paid for, which they are not while Interrupted. Source: docs, "Managed Spot Training".
_BILLED = ("Downloading", "Training", "Uploading", "Stopping")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A job's machines and seconds. `usd` is an estimate by the catalogue's price; None for a type that has none.

    `billable_s` is of one machine, as the API counts it: instance-seconds are times `instance_count`. On spot instances
    the service reports fewer billable seconds than seconds of training, not a lower price: `saving` is that share; None on demand.
    """

    instance_type: str
    instance_count: int
    training_s: float
    billable_s: float
    instance_s: float
    usd: float | None
    saving: float | None
    interruptions: int


def bill(description: Mapping[str, Any], now: datetime | None = None) -> Bill:
    """What a job has cost.

    Args:
        description: of DescribeTrainingJob.
        now: of a job that runs; the service counts only at the end, so until then seconds are those of its billed phases.
    """
    machines = description["ResourceConfig"]
    kind = machines.get("SelectedInstanceType", machines.get("InstanceType", ""))
    count = machines.get("SelectedInstanceCount", machines.get("InstanceCount", 1))
    phases = description.get("SecondaryStatusTransitions", [])
    so_far = sum(_seconds(phase, now) for phase in phases if phase["Status"] in _BILLED) if now else 0.0
    training_s = float(description.get("TrainingTimeInSeconds", so_far))
    billable_s = float(description.get("BillableTimeInSeconds", so_far))
    price = _prices().get(kind)
    spot = description.get("EnableManagedSpotTraining", False) and training_s > 0
    return Bill(
        instance_type=kind,
        instance_count=count,
        training_s=training_s,
        billable_s=billable_s,
        instance_s=billable_s * count,
        usd=None if price is None else billable_s * count * price / 3600,
        saving=1 - billable_s / training_s if spot else None,
        interruptions=sum(phase["Status"] == "Interrupted" for phase in phases),
    )


def _seconds(phase: Mapping[str, Any], now: datetime) -> float:
    return max(0.0, float((phase.get("EndTime", now) - phase["StartTime"]).total_seconds()))


@cache
def _prices() -> dict[str, float]:
    return {instance.name: instance.usd_per_hour for instance in read_instances()}


def log_link(kind: JobKind, description: Mapping[str, Any]) -> str:
    """The job's log streams in the console of its region and partition."""
    _, partition, _, region, _, _ = str(description[kind.arn]).split(":", 5)
    console = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}.get(
        partition, "console.aws.amazon.com"
    )
    group, stream = (_console_quote(text) for text in (kind.log_group, f"{description[kind.name]}/"))
    place = f"log-groups/log-group/{group}$3FlogStreamNameFilter$3D{stream}"
    return f"https://{region}.{console}/cloudwatch/home?region={region}#logsV2:{place}"


def _console_quote(text: str) -> str:
    """CloudWatch's console quotes twice, with $ for %."""
    return quote(quote(text, safe=""), safe="").replace("%", "$")
