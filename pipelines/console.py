"""What a person sees of a run: one line a step, and the table at its end."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from components.evaluation import read_evaluation
from components.plan_file import read_plan
from pipelines.local.run import Listener
from pipelines.runs import Run, Task

NO_TERMINAL_WIDTH = 150


class RunConsole:
    """Prints a run as it goes. On a terminal the running step shows its time and last message; `verbose` prints every line."""

    def __init__(self, *, verbose: bool, stderr: bool = False) -> None:
        terminal = Console(highlight=False, stderr=stderr)
        # A log file has no width to fit.
        self.console = terminal if terminal.is_terminal else Console(highlight=False, stderr=stderr, width=NO_TERMINAL_WIDTH)
        self._verbose = verbose
        self._status = self.console.status("")
        self._began = 0.0

    def listener(self) -> Listener:
        return Listener(began=self._on_begin, said=self._on_line, ended=self._on_end)

    def _on_begin(self, task: Task) -> None:
        self._began = time.monotonic()
        if self._verbose:
            self.console.print(f"{task.name} ...")
        elif self.console.is_terminal:
            self._status.update(f"{task.name} ...")
            self._status.start()

    def _on_line(self, task: str, line: str) -> None:
        if self._verbose:
            self.console.print(line, markup=False)
        elif self.console.is_terminal and line:
            self._status.update(f"{task} {time.monotonic() - self._began:.0f} s: {line[:90]}".replace("[", "\\["))

    def _on_end(self, task: Task) -> None:
        self._status.stop()
        if task.state == "succeeded":
            self.console.print(f"{task.name:<20} {task.elapsed_s:6.1f} s  {task.figures}", markup=False, soft_wrap=True)
        else:
            self.console.print(f"{task.name:<20} {task.elapsed_s:6.1f} s  failed", markup=False)

    def stop(self) -> None:
        self._status.stop()


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
