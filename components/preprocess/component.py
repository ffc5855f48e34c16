"""KFP interface of the preprocess step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def preprocess(
    inputs: str,
    settings: str,
    dataset: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Raw click logs into a dataset.

    Args:
        inputs: a JSON list of paths, folders and globs.
        settings: a JSON object of the fields of PreprocessConfig, see components/preprocess/settings.py.
    """
    import json
    from pathlib import Path

    from components.preprocess.settings import read_settings
    from components.preprocess.step import preprocess as run

    run(read_settings(settings), json.loads(inputs), Path(dataset.path), Path(report.path))
