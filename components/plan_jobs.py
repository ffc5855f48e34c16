"""A plan as one training job: its channels, and everything else that CreateTrainingJob is told.

Which worker reads what is agreed with components/train/program/channels.py:

    File, FastFile, or one worker a host    train               everything
    Pipe with w workers a host              train-0 ...         channel i holds the shards i, i + w, i + 2w, ... of the manifest

A prefix of S3 cannot pick every w-th object, so such a channel is a manifest file, which lists its objects. Its name holds a digest
of what it lists: written twice, it is the same file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from components.errors import InvalidConfig
from components.job_settings import JobSettings
from components.manifest import MANIFEST, Manifest, read_manifest
from components.plan import LOCAL, Plan, ProbeWish, hyperparameters
from components.s3 import answered, s3_client
from components.storage import write_text_atomic
from components.training_jobs import Channel, Metric, TrainingJob
from components.transforms import TRANSFORM

ENTRYPOINT = ("python3", "-m", "components.train.program.launch")
# A probe that hangs must not be paid for until the limit of real training.
PROBE_MAX_RUNTIME_S = 600
# On spot instances, where nobody said how often.
SPOT_CHECKPOINT_STEPS = 500
# Source: API reference, CreateTrainingJob, InputDataConfig.
MOST_CHANNELS = 20
# What the program's log lines say; the service keeps the last value of each (FinalMetricDataList) and draws them all.
METRICS = (
    Metric(name="loss", regex=r"step [0-9]+ of [0-9]+, loss ([0-9.]+)"),
    Metric(name="examples_per_s", regex=r"step [0-9]+ of .* ([0-9]+) examples/s"),
    Metric(name="checkpoint_step", regex=r"checkpoint of step ([0-9]+) written"),
    Metric(name="resumed_at_step", regex=r"resuming at step ([0-9]+) of"),
)


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job, and the files (URI to text) that must be there before it starts."""

    job: TrainingJob
    files: Mapping[str, str]


def plan_job(
    plan: Plan,
    dataset: Path,
    jobs: JobSettings,
    *,
    task: str,
    probe: ProbeWish = "none",
    max_seconds: float = 0.0,
    precision: float = 0.0,
    champion: str = "",
) -> PlannedJob:
    """The training job that carries out a plan; see `components.probes.run_plan`.

    Raises:
        InvalidConfig: the plan and the dataset or the settings do not go together.
    """
    whole, on_spot = probe == "none", plan.use_spot and probe == "none"
    train, files = _train_channels(plan, dataset, jobs)
    channels = [*train, *_other_channels(plan, dataset, jobs, whole=whole, champion=champion)]
    if len(channels) > MOST_CHANNELS:
        raise InvalidConfig(
            f"{len(channels)} channels, a job may have {MOST_CHANNELS}; plan fewer workers a host, or FastFile mode"
        )
    settings = hyperparameters(plan, probe=probe, max_seconds=max_seconds, precision=precision, warm_start=bool(champion))
    checkpoint_steps = (jobs.checkpoint_steps or (SPOT_CHECKPOINT_STEPS if on_spot else 0)) if whole else 0
    checkpoint_uri = ""
    if checkpoint_steps:
        settings["checkpoint_steps"] = str(checkpoint_steps)
        # The same for every attempt and every type of machine, so that none begins again.
        checkpoint_uri = jobs.checkpoint_uri or f"{jobs.output_uri.rstrip('/')}/checkpoints/{jobs.run_id}/{task}"
    runtime_s = jobs.max_runtime_s if whole else min(jobs.max_runtime_s, PROBE_MAX_RUNTIME_S)
    job = TrainingJob(
        base_name=f"ctrflow-{task}",
        run_id=jobs.run_id,
        task=task,
        attempt=jobs.attempt,
        image=jobs.image,
        entrypoint=ENTRYPOINT,
        role_arn=jobs.role_arn,
        instance_type=jobs.instance_type if plan.instance_type == LOCAL else plan.instance_type,
        instance_count=plan.instance_count,
        alternatives=plan.alternatives,
        capacity=jobs.capacity if not on_spot else "fallback",
        max_runtime_s=runtime_s,
        # A probe on spot instances would measure interruptions, so it runs on demand.
        use_spot=on_spot,
        max_wait_s=(jobs.max_wait_s or 2 * runtime_s) if on_spot else 0,
        keep_alive_s=0 if whole else jobs.keep_alive_s,
        checkpoint_uri=checkpoint_uri,
        output_uri=jobs.output_uri,
        channels=tuple(channels),
        hyperparameters=settings,
        metrics=METRICS,
        network=jobs.network(),
        kms_key=jobs.kms_key,
        tags=jobs.tags,
        environment=jobs.environment,
    )
    return PlannedJob(job=job, files=files)


def write_files(planned: PlannedJob) -> None:
    """Put the files where the job will look for them."""
    for uri, text in planned.files.items():
        if uri.startswith("file://"):
            path = Path(unquote(urlsplit(uri).path))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(path, text)
            continue
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        with answered(uri):
            s3_client().put_object(Bucket=bucket, Key=key, Body=text.encode())


def _train_channels(plan: Plan, dataset: Path, jobs: JobSettings) -> tuple[list[Channel], dict[str, str]]:
    """What is trained on, and the manifest files that it takes."""
    root = _data_uri(dataset, jobs)
    if plan.input_mode != "Pipe":
        return [_train_channel(plan, "train", f"{root}/train")], {}
    manifest = read_manifest(dataset)
    _check_pipe(plan, manifest)
    if plan.workers_per_host == 1:
        return [_train_channel(plan, "train", f"{root}/train")], {}
    channels, files = [], {}
    for local in range(plan.workers_per_host):
        shards = [shard.path.removeprefix("train/") for shard in manifest.train.shards[local :: plan.workers_per_host]]
        text = json.dumps([{"prefix": f"{root}/train/"}, *shards], indent=1)
        uri = f"{jobs.output_uri.rstrip('/')}/channels/{hashlib.sha256(text.encode()).hexdigest()[:16]}.manifest"
        files[uri] = text
        channels.append(_train_channel(plan, f"train-{local}", uri, listed=True))
    return channels, files


def _train_channel(plan: Plan, name: str, uri: str, *, listed: bool = False) -> Channel:
    return Channel(name=name, uri=uri, listed=listed, input_mode=plan.input_mode, distribution=plan.s3_distribution)


def _check_pipe(plan: Plan, manifest: Manifest) -> None:
    """Refuse what the program would refuse, before machines are paid for."""
    if plan.strategy == "parameter_server":
        raise InvalidConfig("input_mode Pipe: the workers of parameter_server read files; plan FastFile mode")
    if manifest.encoding == "libsvm":
        raise InvalidConfig("input_mode Pipe: libsvm text has no checksums; convert the dataset to blocks, or plan FastFile mode")
    shards = len(manifest.train.shards)
    if shards < plan.workers_per_host:
        raise InvalidConfig(
            f"input_mode Pipe: {shards} shards for {plan.workers_per_host} workers a host, each needs one of its own; convert the "
            "dataset to more shards"
        )


def _other_channels(plan: Plan, dataset: Path, jobs: JobSettings, *, whole: bool, champion: str) -> list[Channel]:
    """A channel is every object under its URI, so the manifest's is the one file, and so is the transform's.

    Args:
        whole: a training, which has the validation rows too, and keeps the transform with the model.
    """
    root = _data_uri(dataset, jobs)
    channels = [Channel(name="manifest", uri=f"{root}/{MANIFEST}", input_mode="File")]
    if whole:
        # Nothing reads it as a stream.
        mode = "FastFile" if plan.input_mode == "Pipe" else plan.input_mode
        channels.append(Channel(name="validation", uri=f"{root}/validation", input_mode=mode))
    if whole and (dataset / TRANSFORM).is_file():
        channels.append(Channel(name="transform", uri=f"{root}/{TRANSFORM}", input_mode="File"))
    if champion:
        channels.append(Channel(name="champion", uri=champion, input_mode="File"))
    return channels


def _data_uri(dataset: Path, jobs: JobSettings) -> str:
    return jobs.data_uri.rstrip("/") or dataset.resolve().as_uri()
