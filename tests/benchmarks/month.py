"""A month of nightly retraining on a planted model that drifts, through the steps themselves; exit code 1 if a promise was broken.

    python tests/benchmarks/month.py [--days 30] [--rows 40000]

Every night: preprocess by the champion's transform, whose vocabulary grows, the check before training, a training job that starts
from the champion, evaluate against it, promote. On three days the data are bad and must be refused. Five promotions are killed
(SIGKILL), each at another point: what is in force then must be the old champion or the new one, whole, and the night is run again.
After each night the champion is measured on 20,000 rows of the next day that nobody has seen, each weighted by its planted chances
of a click and of none, so that labels add no luck: it may not be worse than the one before by more than the gate's margin.
"""

import argparse
import io
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from components import local_storage
from components.champion import Champion, champion_model, check_champion, check_files, published_versions, read_champion
from components.data_check import DataLimits, check_data
from components.errors import InvalidRecords
from components.evaluate.step import EvaluateConfig, evaluate
from components.job_settings import JobSettings
from components.model_files import model_digest, read_model
from components.plan import ModelSettings, direct_plan
from components.preprocess.champion_rows import by_champion
from components.preprocess.config import CHAMPION, PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.step import preprocess
from components.promote import step as promotion
from components.promote.model_store import read_version
from components.storage import open_storage
from components.train.step import TrainStepConfig, start_from, train
from pipelines.local_jobs import local_jobs
from pipelines.sample import PlantedModel, Rows
from pipelines.scoring import open_source, score_rows

NAME = "deepfm"
CONFIG = promotion.PromoteConfig(name=NAME)
SETTINGS = ModelSettings(embedding_size=8, deep_layers=(32, 16), learning_rate=0.002, batch_size=512)
# Ids that the vocabularies may grow to.
GROW_TO = 20_000
# How far the planted weights turn in a day, in radians: those of a month ago share 7 % with today's.
TURN = 0.05
NEXT_ROWS = 20_000
BAD_DAYS = {8: "labels shuffled", 15: "half the file missing", 22: "ids shifted"}
# From which day on a promotion is killed, the next one that gets so far, and where: what is called there kills the process instead.
CRASHES: list[tuple[int, str, Any, str]] = [
    (4, "before the copy", promotion, "add_version"),
    (10, "while files are copied", local_storage, "_copy"),
    (17, "before the version appears", Path, "rename"),
    (20, "before champion.json", promotion, "put_in_force"),
    (25, "after champion.json", promotion, "_mirrored"),
]


class DriftingWorld:
    """The planted model of the sample, whose weights turn towards those of another one day by day."""

    def __init__(self, seed: int) -> None:
        self._model = PlantedModel()
        self._random = np.random.default_rng(seed)
        first = [self._model.count_weights, *self._model.weights]
        self._ends = [(one, self._another(one)) for one in first]

    def _another(self, weights_K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights with the same sizes in another order, the frequent ten apart from the others, whose effects fade by rank."""
        return np.concatenate([self._random.permutation(weights_K[:10]), -weights_K[10:]])

    def day(self, number: int, rows: int) -> tuple[Rows, NDArray[np.float64]]:
        """Rows of a day and their chances of a click, float64 [B]."""
        old, new = np.cos(TURN * number), np.sin(TURN * number)
        turned = [old * one + new * other for one, other in self._ends]
        self._model.count_weights, self._model.weights = turned[0], turned[1:]
        drawn = self._model.draw(self._random, rows)
        return drawn, self._model.probabilities(drawn)

    def labels(self, chances_B: NDArray[np.float64]) -> NDArray[np.int64]:
        """Clicks drawn by their chances, int64 [B]."""
        return (self._random.random(len(chances_B)) < chances_B).astype(np.int64)

    def shuffled(self, labels_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._random.permutation(labels_B)


def write_day(path: Path, labels_B: NDArray[np.int64], rows: Rows, shift: int = 0) -> Path:
    """A day's log as raw Criteo rows; `shift` is added to every category's number."""
    counts = rows.counts.astype(str).astype(object)
    counts[rows.gaps] = ""
    fields = np.arange(rows.categories.shape[1]) << 24
    tokens = np.vectorize("{:08x}".format, otypes=[object])(rows.categories + shift + fields)
    tokens[rows.categories == 0] = ""
    lines = np.concatenate([labels_B.astype(str).astype(object)[:, np.newaxis], counts, tokens], axis=1)
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="ascii")
    return path


@dataclass(frozen=True, kw_only=True)
class Night:
    """What a night ended with; `compared` is the AUC of the champion and of the model on trial, on the day's held-out rows."""

    outcome: str
    promoted: bool = False
    compared: str = ""
    killed: bool = False
    model: Path | None = None


def dies(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def promote_and_die(crash: int, *arguments: Any) -> None:
    """In a process of its own: promote, which is killed at the point of that crash, if the gate lets it get so far."""
    _, _, owner, name = CRASHES[crash]
    real = promotion.bring_into_force

    def deadly(*given: Any) -> Any:
        setattr(owner, name, dies)
        return real(*given)

    promotion.bring_into_force = deadly
    promotion.promote(*arguments)


def run_night(log: Path, store: Path, work: Path, jobs: JobSettings, crash: int | None) -> Night:
    """From the day's log to the gate's word."""
    work.mkdir()
    champion = read_champion(store, NAME)
    folder = champion_model(store, champion) if champion else None
    config = PreprocessConfig(
        format="criteo",
        validation_fraction=0.25,
        transform=CHAMPION,
        grow_to=GROW_TO,
        fitting=TransformConfig(categories="vocabulary"),
    )
    dataset, model, report = work / "dataset", work / "model", work / "report.html"
    preprocess(by_champion(config, store, NAME, work), [str(log)], dataset, report)
    try:
        check_data(DataLimits(), dataset, store, NAME)
    except InvalidRecords as error:
        return Night(outcome=f"refused before training: {str(error).partition(': ')[2].partition(';')[0]}")
    training, evaluation = work / "training.json", work / "evaluation.json"
    train(
        TrainStepConfig(),
        dataset,
        direct_plan("single", SETTINGS),
        model,
        training,
        report,
        jobs,
        champion=start_from(folder) if folder else None,
    )
    found = evaluate(EvaluateConfig(name=NAME), model, dataset, evaluation, report, store)
    compared = f"{found.champion.auc:.4f}, {found.auc:.4f}" if found.champion else f"none, {found.auc:.4f}"
    arguments = (CONFIG, model, evaluation, store, work / "promotion.json", report, training)
    if crash is not None:
        child = multiprocessing.get_context("spawn").Process(target=promote_and_die, args=(crash, *arguments))
        child.start()
        child.join()
        if child.exitcode == -signal.SIGKILL:
            return Night(outcome=f"killed {CRASHES[crash][1]}", killed=True, model=model, compared=compared)
        if child.exitcode:
            raise SystemExit(f"promote ended with {child.exitcode}")
    decided = promotion.promote(*arguments)
    outcome = f"version {decided.version}" if decided.promoted else f"refused: {decided.reason.partition(';')[0]}"
    return Night(outcome=outcome, promoted=decided.promoted, compared=compared, model=model)


def true_auc(model: Path, log: Path, chances_B: NDArray[np.float64]) -> float:
    """AUC on rows of which each counts as a click by its chance, and as none by the rest."""
    scores = io.StringIO()
    reading: dict[str, Any] = {"format": "criteo"}
    with tempfile.TemporaryDirectory() as scratch:
        score_rows(model, open_source(model, [str(log)], reading, Path(scratch)), scores)
    found = np.loadtxt(io.StringIO(scores.getvalue()), delimiter=",", skiprows=1, usecols=1)
    labels = np.repeat((1, 0), len(found))
    return float(roc_auc_score(labels, np.tile(found, 2), sample_weight=np.concatenate([chances_B, 1 - chances_B])))


def in_store(store: Path) -> Champion:
    """The champion, when its files and all versions that there are have been held against their digests."""
    champion = check_champion(store, NAME)
    storage = open_storage(store)
    for number in published_versions(storage, NAME):
        check_files(storage, NAME, number, read_version(storage, NAME, number).model_digest)
    assert champion is not None, "every night but the first begins with a champion"
    return champion


class Month:
    """The nights one after another, and what was broken."""

    def __init__(self, folder: Path, jobs: JobSettings, rows: int, seed: int) -> None:
        self._folder, self._jobs, self._rows = folder, jobs, rows
        self._world, self.store = DriftingWorld(seed), folder / "models"
        self._crashes = list(range(len(CRASHES)))
        self.problems: list[str] = []
        self.promotions = 0

    def _log(self, day: int) -> Path:
        rows, chances = self._world.day(day, self._rows)
        labels, bad = self._world.labels(chances), BAD_DAYS.get(day, "")
        if bad == "half the file missing":
            half = len(labels) // 2
            rows = Rows(counts=rows.counts[:half], gaps=rows.gaps[:half], categories=rows.categories[:half])
            labels = labels[:half]
        elif bad == "labels shuffled":
            labels = self._world.shuffled(labels)
        return write_day(self._folder / f"day-{day}.tsv", labels, rows, shift=int(bad == "ids shifted"))

    def _promise(self, day: int, kept: bool, what: str) -> None:
        if not kept:
            self.problems.append(f"day {day}: {what}")

    def night(self, day: int) -> list[str]:
        """The cells of a day's line."""
        log, tries = self._log(day), 0
        before = read_champion(self.store, NAME)
        crash = self._crashes[0] if self._crashes and CRASHES[self._crashes[0]][0] <= day and before else None
        night = run_night(log, self.store, self._folder / f"{day}.{tries}", self._jobs, crash)
        outcome = night.outcome
        if night.killed and night.model:
            self._crashes.pop(0)
            left = in_store(self.store)
            whole = left == before or (crash == len(CRASHES) - 1 and left.model_digest == model_digest(night.model))
            self._promise(day, whole, f"{night.outcome}, version {left.version} was left in force")
            night = run_night(log, self.store, self._folder / f"{day}.again", self._jobs, None)
            outcome = f"{outcome}, left version {left.version} whole; again: {night.outcome}"
        after = in_store(self.store)
        self.promotions += after != before
        self._promise(day, day not in BAD_DAYS or after == before, f"{BAD_DAYS.get(day)} was not refused")
        self._promise(day, day not in BAD_DAYS or not night.promoted, f"{BAD_DAYS.get(day)} was promoted")
        return [str(day), BAD_DAYS.get(day, ""), night.compared, outcome, *self._next_day(day, before, after)]

    def _next_day(self, day: int, before: Champion | None, after: Champion) -> list[str]:
        rows, chances = self._world.day(day + 1, NEXT_ROWS)
        log = write_day(self._folder / "next.tsv", self._world.labels(chances), rows)
        new = true_auc(champion_model(self.store, after), log, chances)
        if before is None or before == after:
            return ["", f"{new:.4f}"]
        old = true_auc(champion_model(self.store, before), log, chances)
        self._promise(day, new >= old - CONFIG.margin, f"the champion fell from {old:.4f} to {new:.4f} on the next day's rows")
        return [f"{old:.4f}", f"{new:.4f}"]

    def end(self, days: int) -> str:
        """How the champion of the first day would do by now."""
        self._promise(days, not self._crashes, f"{len(self._crashes)} promotions were never killed: too few got so far")
        rows, chances = self._world.day(days + 1, NEXT_ROWS)
        log = write_day(self._folder / "next.tsv", self._world.labels(chances), rows)
        models = [self.store / NAME / "versions" / str(number) / "model" for number in (1, in_store(self.store).version)]
        first, last = (true_auc(model, log, chances) for model in models)
        self._promise(days, last > first, f"the champion of the first day has {first:.4f}, the last one {last:.4f}")
        ids = [read_model(model).feature_size for model in models]
        return (
            f"{self.promotions} promotions, a table of {ids[0]:,} ids that grew to {ids[1]:,}; a champion never replaced would "
            f"have {first:.4f} by now, the last one has {last:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    began = time.monotonic()
    print("| day | data | AUC held out: champion, new | outcome | next day's rows: before | after |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, local_jobs() as jobs:
        month = Month(Path(folder), jobs, given.rows, given.seed)
        for day in range(1, given.days + 1):
            print("| " + " | ".join(month.night(day)) + " |", flush=True)
        print(f"\n{month.end(given.days)}; {time.monotonic() - began:.0f} s")
    if month.problems:
        sys.exit("\n".join(month.problems))


if __name__ == "__main__":
    main()
