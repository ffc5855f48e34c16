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
    dataset: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Raw click logs into a dataset, which is refused if no model should be trained on it.

    Args:
        inputs: a JSON list of paths, folders and globs, in which {date} is the run's date.
        settings: a JSON object of the fields of PreprocessConfig, see components/preprocess/settings.py.
        store, name: model store, and the name of the model whose champion's training data the rows are compared with.
        data_limits: a JSON object of the fields of DataLimits, see components/data_check.py.
        run_date: YYYY-MM-DD; empty: today in UTC, see components/run_dates.py.
    """
    import json
    from pathlib import Path

    from components.data_check import check_data, read_limits
    from components.figures import log_figures
    from components.preprocess.settings import read_settings
    from components.preprocess.step import preprocess as run
    from components.run_dates import dated
    from components.summaries import figures

    limits = read_limits(data_limits)
    made = run(read_settings(settings), dated(json.loads(inputs), run_date), Path(dataset.path), Path(report.path))
    log_figures(metrics, figures(made))
    check_data(limits, Path(dataset.path), store, name)
