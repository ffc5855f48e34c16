"""KFP interface of the preprocess step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def preprocess(
    inputs: str,
    settings: str,
    store: str,
    name: str,
    data_limits: str,
    run_date: str,
    days: int,
    dataset: dsl.Output[dsl.Dataset],
    champion_dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Raw click logs into a dataset, which is refused if no model should be trained on it.

    Where the champion's ids mean something else, `champion_dataset` holds the same rows by its own transform; else a file that says
    why it holds none.

    Args:
        inputs: a JSON list of paths, folders and globs, in which {date} is the run's date.
        settings: a JSON object of the fields of PreprocessConfig, see components/preprocess/settings.py.
        store, name: model store, and the name of the model whose champion's training data the rows are compared with.
        data_limits: a JSON object of the fields of DataLimits, see components/data_check.py.
        run_date: YYYY-MM-DD; empty: today in UTC, see components/run_dates.py. days: that {date} stands for, this one the last.
    """
    import json
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from components.data_check import check_data, read_limits
    from components.figures import log_figures
    from components.preprocess.champion_rows import by_champion, champion_rows
    from components.preprocess.settings import read_settings
    from components.preprocess.step import preprocess as run
    from components.run_dates import dated
    from components.summaries import figures

    limits, files = read_limits(data_limits), dated(json.loads(inputs), run_date, days)
    out, other = Path(dataset.path), Path(champion_dataset.path)
    with TemporaryDirectory(prefix="ctrflow-champion-") as scratch:
        config = by_champion(read_settings(settings), store, name, Path(scratch))
        log_figures(metrics, figures(run(config, files, out, Path(report.path))))
        without = champion_rows(config, files, out, other, store, name, Path(scratch))
    if without:
        # S3 keeps no empty folder, and the next step's input must be there.
        other.mkdir(parents=True, exist_ok=True)
        (other / "why-empty.txt").write_text(without + "\n", encoding="utf-8")
    check_data(limits, out if without else other, store, name)
