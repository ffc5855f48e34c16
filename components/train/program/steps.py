"""The steps of one process, run and measured; training.json's figures."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.errors import WorkflowError
from components.manifest import Manifest
from components.resources import usable_cpus
from components.train.program.agreement import check_agreement
from components.train.program.channels import Channels
from components.train.program.config import ProbeName, TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division
from components.train.program.fit import Recorder, fit
from components.train.program.input import Payloads, Source, batches, explain_damage, read_files
from components.train.program.pipe import PipeReader
from components.train.program.read_ahead import ReadAhead
from components.train.program.resumption import save
from components.train.program.sampler import Sampler

# What probe all measures after both.
PARTS: tuple[ProbeName, ...] = ("compute", "input")
# What TensorFlow's readers raise for data that is damaged, or not what was declared.
DATA_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


@dataclass(frozen=True, kw_only=True)
class Input:
    """What this process trains on, and how it reads it; `pipe` only in Pipe mode."""

    config: TrainConfig
    source: Source
    manifest: Manifest
    channels: Channels
    division: Division
    pipe: PipeReader | None
    cached: bool

    @property
    def payloads(self) -> Payloads:
        return self.pipe.payloads if self.pipe else read_files(self.source.files, self.source.encoding, self.config.parallel_reads)

    def explain(self, error: tf.errors.OpError) -> WorkflowError | None:
        """What is wrong with the data, named; None when it is not the data."""
        if self.pipe:
            return self.pipe.explain()
        return explain_damage(self.source, self.manifest) if isinstance(error, DATA_ERRORS) else None


def run_steps(
    container: Container,
    config: TrainConfig,
    given: Input,
    strategy: Any,
    begun: int,
    started: float,
    progress: Path,
) -> dict[str, Any]:
    """The steps after the first `begun`; what was measured, as training.json has it."""
    division = given.division

    def due(step: int) -> None:
        check_agreement(strategy.checksums(), step)
        save(strategy, division, container.checkpoints, step, config.keep_checkpoints)
        # Writing a large table takes a while in which no step ends, and is no hang.
        progress.touch()

    def part(probe: ProbeName, rows: Iterator[Any], begun: int, last: int) -> dict[str, Any]:
        """The figures of the steps from `begun` on."""
        recorder = Recorder(config, division, begun, started, progress, strategy.loss_scale)
        # What a launcher started on this host is this job.
        with Sampler(os.getppid()) as sampler:
            try:
                if config.strategy == "parameter_server":
                    strategy.fit(division, recorder, begun, due, given.cached)
                else:
                    fit(strategy, rows, config, recorder, probe=probe, begun=begun, steps=last, save=due)
            except tf.errors.OpError as error:
                if (found := given.explain(error)) is not None:
                    raise found from error
                raise
        since, summary = recorder.summary()
        own = sampler.figures(since)
        ranks = [rank for ranks in strategy.each_rank(summary["ranks"]) for rank in ranks]
        distinct = summary["distinct_rows"]
        sent = None if probe == "input" or distinct is None else strategy.sent_bytes(distinct)
        return summary | own | {"ranks": ranks, "rank_skew": skew(ranks), "sent_bytes_per_step": sent, "probe": probe}

    rows: Any = iter(())
    if config.strategy != "parameter_server":
        rows = ReadAhead(batches(given.payloads, given.source, division, config.seed, begun, cached=given.cached, how=config))
    if config.probe == "all":
        # In one process: importing TensorFlow takes longer than measuring. What is left in buffers is found to be warm-up.
        third = max(division.steps // 3, 1)
        measured = part("both", rows, 0, third)
        parts = {name: part(name, rows, 0, third) for name in PARTS}
    else:
        measured, parts = part(config.probe, rows, begun, division.steps), {}
    progress.unlink(missing_ok=True)
    cpus = usable_cpus()
    return {
        "strategy": config.strategy,
        "world_size": division.size,
        "workers_per_host": config.workers_per_host,
        "hosts": len(container.hosts),
        "batch_size": division.batch_size,
        "steps": division.steps,
        "resumed_at": begun,
        "steps_per_epoch": division.steps_per_epoch,
        "examples_left_out": division.left_out,
        "examples_repeated": division.repeated,
        "input_mode": given.channels.input_mode,
        "encoding": given.source.encoding,
        "rows_cached": given.cached,
        **measured,
        "usable_cpus": cpus.count,
        "usable_cpus_source": cpus.source,
        "parts": parts,
        **strategy.figures(),
    }


def skew(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """How much longer than the mean worker the slowest one computes in a step; 0 = all alike, None for one."""
    seconds = [rank["compute_s"] for rank in ranks]
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean - 1 if len(seconds) > 1 and mean > 0 else None
