"""How long a step takes, as a sum of parts: fitted to what was measured, used for what was not.

    T = step + examples + (cells + products) / cores + parameters + waits + (dense bytes + row bytes) / bandwidth

Each part is an amount that follows from the model, the batch and the workers, times a coefficient. Coefficients come from
non-negative least squares over relative errors. A few probes cannot tell eight parts apart, so
each coefficient also has a prior: its size on the machine of tests/benchmarks/README.md, all of them scaled to the measured steps
of one process, and believed to within a factor of about two. What is measured outweighs it; what is not measured rests on it, and
the interval says how little is known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from components.plan import ONE_PROCESS, Strategy
from components.select_strategy.least_squares import nonnegative_least_squares
from components.select_strategy.work import Work
from components.traffic import Placement

PARTS = ("step", "examples", "cells", "products", "parameters", "waits", "dense bytes", "row bytes")
# Seconds: a step's own overhead, a field of an example (distinct ids), a cell, an operation, a dense parameter. The last three
# count seconds already; of row bytes there are fewer than Work counts, for real ids repeat. Source: tests/benchmarks/README.md, a
# training step and what it is made of.
_PRIOR = np.array([1e-3, 9e-9, 1.1e-9, 1.35e-11, 3.5e-9, 1.0, 1.0, 0.4])
# What an exchange on loopback costs without its bytes, and bytes a second of loopback. Source: placement.py measured them.
WAIT_S, LOOPBACK_BYTES_PER_S = 5e-4, 1e9
# A worker of parameter servers computes so much longer than a single process, for the servers take cores of the same hosts.
# Source: components/train/README.md, 83,090 and 46,466 examples/s.
_SERVED = 1.8
# How far a prior coefficient may be off, and how far a measurement on a shared machine, as standard deviations of the ratio.
_PRIOR_SD, MEASURED_SD = 1.0, 0.05
# A batch cannot be cut among ever more cores: threads with fewer rows than these cost more than they bring.
_ROWS_PER_CORE = 64
# For 95 %: standard deviations of a normal distribution.
Z = 1.96


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to run a step, on machines as fast a core as the profiled one, times `speed`.

    Attributes:
        batch_size: of one worker. cores: that one worker has.
        link_bytes_per_s: of a host, for all its workers; None on one host.
    """

    strategy: Strategy
    hosts: int = 1
    workers_per_host: int = 1
    batch_size: int
    cores: float
    speed: float = 1.0
    link_bytes_per_s: float | None = None
    placement: Placement = "auto"

    @property
    def workers(self) -> int:
        return self.hosts * self.workers_per_host


def amounts(setup: Setup, work: Work) -> NDArray[np.float64]:
    """The amounts of the parts of a step, in the order of PARTS."""
    rows = setup.batch_size
    # Less than a core where workers outnumber cores.
    parallel = min(setup.cores, max(rows / _ROWS_PER_CORE, 1.0))
    waits, dense, table = _travel(setup, work)
    bandwidth = setup.link_bytes_per_s or LOOPBACK_BYTES_PER_S
    own = np.array([1.0, rows * work.fields, rows * work.cells / parallel, rows * work.products / parallel, work.dense_parameters])
    if setup.strategy == "parameter_server":
        own = own * _SERVED
    return np.array([*(own / setup.speed), waits * WAIT_S, dense / bandwidth, table / bandwidth])


def _travel(setup: Setup, work: Work) -> tuple[float, float, float]:
    """Times that a worker waits for others in a step, and the bytes that its link carries meanwhile: dense gradients, table rows.

    A ring leaves each host once, however many workers it has; rows of a sharded table leave it for each of them.
    """
    if setup.strategy in ONE_PROCESS:
        return 0.0, 0.0, 0.0
    if setup.strategy == "parameter_server":
        # Rows, dense weights, gradients: to all servers at once. What lies on the worker's own host crosses no link.
        outside = (setup.hosts - 1) / setup.hosts
        return 3.0, outside * work.server_dense_bytes(), outside * work.server_row_bytes(setup.batch_size)
    if setup.workers == 1:
        return 0.0, 0.0, 0.0
    # A ring passes a piece on 2 (n - 1) times; each is a message, not the wait for everyone that WAIT_S is.
    waits, dense = 1 + 2 * (setup.workers - 1) / 10, work.dense_bytes(setup.workers)
    if setup.hosts == 1:
        return waits, dense, 0.0
    placement = work.placement(setup.workers, setup.batch_size, math.inf) if setup.placement == "auto" else setup.placement
    rows = work.row_bytes(setup.workers, setup.batch_size, placement)
    sharded = placement == "sharded"
    return waits + (3 if sharded else 1), dense, rows * (setup.workers_per_host if sharded else 1)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured step: how it was run and how long it took. sd: standard deviation of the measured rate, relative."""

    setup: Setup
    step_s: float
    sd: float = MEASURED_SD


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Examples a second of all workers, with 95 % bounds, and the share of the cores' time in a step that is used."""

    examples_per_s: float
    low: float
    high: float
    busy: float


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A fitted sum of parts. residuals: of each point, (predicted - measured) / measured."""

    work: Work
    coefficients: tuple[float, ...]
    residuals: tuple[float, ...]
    covariance: NDArray[np.float64]

    def step_s(self, setup: Setup) -> float:
        return float(amounts(setup, self.work) @ np.array(self.coefficients))

    def parts(self, setup: Setup) -> dict[str, float]:
        """Seconds of each part of a step."""
        return dict(zip(PARTS, map(float, amounts(setup, self.work) * np.array(self.coefficients)), strict=True))

    def estimate(self, setup: Setup, *, sd: float = 0.0, most: float = math.inf) -> Estimate:
        """The rate of a set-up.

        Args:
            sd: what else is uncertain, as a relative standard deviation.
            most: what input can deliver, in examples a second.
        """
        row, seconds = amounts(setup, self.work), self.step_s(setup)
        own = math.sqrt(float(row @ self.covariance @ row)) / seconds
        spread = math.exp(Z * math.hypot(own, sd, MEASURED_SD))
        rate = min(setup.workers * setup.batch_size / seconds, most)
        parts = self.parts(setup)
        # Serial parts keep one core busy, the others wait; travel keeps none busy.
        serial = parts["step"] + parts["examples"] + parts["parameters"]
        busy = (serial + (parts["cells"] + parts["products"]) * max(setup.cores, 1.0)) / (seconds * max(setup.cores, 1.0))
        return Estimate(examples_per_s=rate, low=rate / spread, high=min(rate * spread, most), busy=min(busy, 1.0))


def predict(scalings: Mapping[Strategy, Scaling], setup: Setup, *, sd: float = 0.0, most: float = math.inf) -> Estimate:
    """The rate of a set-up by its strategy's own fit where it has one, at most that of a single process for each of its workers.

    A worker has a single process's step to take, with its share of the cores and of the batch, and its exchange besides. A fit
    that says otherwise has read the noise of one measurement of several workers.

    Args:
        scalings: single is always there. sd, most: see Scaling.estimate.
    """
    alone = replace(setup, strategy="single", hosts=1, workers_per_host=1, link_bytes_per_s=None)
    bound = setup.workers * scalings["single"].estimate(alone).examples_per_s if setup.workers > 1 else math.inf
    return scalings.get(setup.strategy, scalings["single"]).estimate(setup, sd=sd, most=min(bound, most))


def fit(points: Sequence[Point], work: Work) -> Scaling:
    """The coefficients that explain these steps best.

    Args:
        points: at least one, measured on one kind of machine with one strategy, or a single process besides it.
    """
    rows = np.array([amounts(point.setup, work) for point in points])
    measured, sd = np.array([point.step_s for point in points]), np.array([point.sd for point in points])
    alone = [index for index, point in enumerate(points) if point.setup.workers == 1] or list(range(len(points)))
    scale = float(np.median(measured[alone] / (rows[alone] @ _PRIOR)))
    # Seconds of travel are not the faster for a faster core.
    prior = _PRIOR * np.array([scale] * 5 + [1.0] * 3)
    weighted = rows / (measured * sd)[:, None]
    believed = np.diag(1 / (prior * _PRIOR_SD))
    target = np.concatenate([1 / sd, np.full(len(prior), 1 / _PRIOR_SD)])
    found = nonnegative_least_squares(np.vstack([weighted, believed]), target)
    residuals = rows @ found / measured - 1
    # Scatter beyond what the probes claimed is the model's own error, and counts for what it predicts.
    excess = max(1.0, float(np.mean((residuals / sd) ** 2)))
    covariance = np.linalg.inv(weighted.T @ weighted / excess + believed.T @ believed)
    return Scaling(
        work=work,
        coefficients=tuple(map(float, found)),
        residuals=tuple(map(float, residuals)),
        covariance=covariance,
    )
