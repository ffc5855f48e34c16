"""What a person sees of a run: one line a step, and the table at its end."""

import json
import time
from datetime import timedelta
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Task as Shown
from rich.table import Table
from rich.text import Text

from components.evaluation import read_evaluation
from components.plan_file import read_plan
from pipelines.local.run import Listener
from pipelines.local.task_log import gist, training_progress
from pipelines.runs import Run, Task

NO_TERMINAL_WIDTH = 150
PLAIN_EVERY_S = 60.0


class Share(ProgressColumn):
    """A bar, once it is known how much there is to do."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = BarColumn(bar_width=20)

    def render(self, task: Shown) -> RenderableType:
        return self._bar.render(task) if task.total else ""


class TimeLeft(ProgressColumn):
    """By how fast it went lately; nothing until that is known."""

    def render(self, task: Shown) -> RenderableType:
        left_s = task.time_remaining
        return Text("" if left_s is None else f"{timedelta(seconds=int(left_s))} left")


class RunConsole:
    """Prints a run as it goes: a line when a step has ended, and what the running one does.

    On a terminal that is one line which changes: its time and last message and, of a training, its steps, loss, rate and time left.
    Elsewhere a training says so in a line of its own, at most one in PLAIN_EVERY_S. `verbose` prints every line.
    """

    def __init__(self, *, verbose: bool, stderr: bool = False) -> None:
        terminal = Console(highlight=False, stderr=stderr)
        # A log file has no width to fit.
        self.console = terminal if terminal.is_terminal else Console(highlight=False, stderr=stderr, width=NO_TERMINAL_WIDTH)
        self._verbose = verbose
        said = TextColumn("{task.fields[said]}", markup=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), Share(), said, TimeLeft())
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._shown = self._progress.add_task("", total=None, said="")
        self._spoke = 0.0

    def listener(self) -> Listener:
        return Listener(began=self._on_begin, said=self._on_line, ended=self._on_end)

    def _on_begin(self, task: Task) -> None:
        self._spoke = time.monotonic()
        if self._verbose:
            self.console.print(f"{task.name} ...")
        elif self.console.is_terminal:
            self._progress.remove_task(self._shown)
            self._shown = self._progress.add_task(task.name, total=None, said="")
            self._progress.start()

    def _on_line(self, task: str, line: str) -> None:
        trained = training_progress(line) if task == "train" else None
        if self._verbose:
            self.console.print(line, markup=False)
        elif not self.console.is_terminal:
            if trained and time.monotonic() - self._spoke >= PLAIN_EVERY_S:
                self._spoke = time.monotonic()
                self.console.print(f"{task:<20} {trained.words}", markup=False)
        elif trained:
            self._progress.update(self._shown, total=trained.steps, completed=trained.step, said=trained.words)
        elif (words := gist(line)) and self._progress.tasks[0].total is None:
            self._progress.update(self._shown, said=words[:90])

    def _on_end(self, task: Task) -> None:
        self.stop()
        if task.state == "succeeded":
            self.console.print(f"{task.name:<20} {task.elapsed_s:6.1f} s  {task.figures}", markup=False, soft_wrap=True)
        else:
            self.console.print(f"{task.name:<20} {task.elapsed_s:6.1f} s  failed", markup=False)

    def stop(self) -> None:
        if self._progress.live.is_started:  # rich ends a line otherwise that was not begun
            self._progress.stop()


def summary(run: Run, folder: Path, *, total_s: float, endpoint_s: float, best_auc: float | None) -> Table:
    """The table at the end of a run that succeeded.

    Args:
        total_s: from the start of the command. endpoint_s: what jobs spent at the endpoint outside their own processes.
        best_auc: the AUC that no model can beat on the built-in sample; None for a user's data.
    """
    table = Table(title=f"run {run.run_id}", title_justify="left", show_header=False, min_width=60)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for task in run.tasks:
        table.add_row(task.name, f"{task.elapsed_s:.1f} s")
    work_s = sum(task.work_s for task in run.tasks)
    table.add_row("total", f"{total_s:.1f} s, of which {total_s - work_s + endpoint_s:.1f} s outside the steps' own work")
    table.add_section()
    table.add_row("plan", read_plan(folder / "select-strategy" / "plan").summary())
    training = json.loads((folder / "train" / "training").read_text(encoding="utf-8"))
    table.add_row("training", f"{training['examples_per_s']:,.0f} examples/s, {training['examples']:,} examples")
    table.add_row("AUC", auc_line(folder, best_auc))
    promotion = json.loads((folder / "promote" / "promotion").read_text(encoding="utf-8"))
    table.add_row("promoted", ("yes: " if promotion["promoted"] else "no: ") + promotion["reason"])
    table.add_section()
    for report in sorted(folder.glob("*/report.html")):
        table.add_row("report", str(report.relative_to(Path.cwd()) if report.is_relative_to(Path.cwd()) else report))
    return table


def auc_line(folder: Path, best_auc: float | None) -> str:
    """The model's AUC, against the best reachable and the champion where there are such."""
    evaluation = read_evaluation(folder / "evaluate" / "evaluation")
    if evaluation.auc is None:
        return f"undefined: {evaluation.auc_reason}"
    line = f"{evaluation.auc:.4f}"
    if best_auc is not None:
        share = (evaluation.auc - 0.5) / (best_auc - 0.5)
        line += f"; the best reachable is {best_auc:.4f}, so {share:.1%} of its lift over 0.5"
    champion = evaluation.champion
    if champion and champion.auc is not None:
        line += f"; champion version {champion.version} has {champion.auc:.4f} on the same rows"
    return line
