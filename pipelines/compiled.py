"""The pipeline as KFP's YAML."""

import tempfile
from pathlib import Path

from components.storage import write_text_atomic


def compile_retrain(out: Path) -> None:
    """Write the compiled pipeline, whole or not at all."""
    from kfp import compiler

    from pipelines.retrain import retrain

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "retrain.yaml"
        compiler.Compiler().compile(retrain, str(made))
        write_text_atomic(out, made.read_text(encoding="utf-8"))
