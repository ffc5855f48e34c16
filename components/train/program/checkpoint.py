"""Checkpoints of a training, in TensorFlow's format: written whole, kept N, verified on load.

    <folder>/ckpt-<step>.data-00000-of-00001   every variable, with a checksum each
             ckpt-<step>.index                 where each lies; moved into place last
             checkpoint                        TensorFlow's own pointer; other readers want it, this one does not trust it

What counts is what lies in the folder: an interruption can leave a pointer without its files and files without their pointer.
"""

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.errors import WorkflowError

log = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

_FILE = re.compile(r"^ckpt-(?P<step>\d+)\.(?:index|data-\d{5}-of-\d{5})$")
_KEY = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a folder, complete or not."""

    folder: Path
    step: int

    @property
    def prefix(self) -> Path:
        return self.folder / f"ckpt-{self.step}"

    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.prefix.name}.*"))


def listed(folder: Path) -> list[Checkpoint]:
    """Every checkpoint of which at least one file is there, newest first."""
    names = [_FILE.match(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return [Checkpoint(folder, step) for step in sorted({int(name["step"]) for name in names if name}, reverse=True)]


def read(checkpoint: Checkpoint) -> dict[str, NDArray[Any]]:
    """All variables by name. Every checksum is verified by reading.

    Raises:
        WorkflowError: a file is missing, short or damaged, named.
    """
    index = checkpoint.prefix.with_suffix(".index")
    if not index.is_file():
        raise WorkflowError(f"{index}: missing")
    if not list(checkpoint.folder.glob(f"{checkpoint.prefix.name}.data-*")):
        raise WorkflowError(f"{checkpoint.prefix}.data-00000-of-00001: missing")
    try:
        reader = tf.train.load_checkpoint(str(checkpoint.prefix))
        # All of it, also what is not a variable: a file that was cut may have lost only its last entry.
        found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        raise WorkflowError(f"{checkpoint.prefix}: short or damaged ({str(error).splitlines()[0]})") from error
    return {name.removesuffix(_KEY): np.asarray(value) for name, value in found.items() if name.endswith(_KEY)}


def read_newest(folder: Path) -> tuple[int, dict[str, NDArray[Any]]] | None:
    """Step and variables of the newest complete checkpoint; None in an empty folder.

    A damaged one is named in a warning and passed over.

    Raises:
        WorkflowError: there are checkpoints and none is complete: starting from nothing would silently lose a training.
    """
    found = listed(folder)
    for checkpoint in found:
        try:
            variables = read(checkpoint)
        except WorkflowError as error:
            log.warning("checkpoint of step %d cannot be used, the one before it is tried: %s", checkpoint.step, error)
            continue
        return checkpoint.step, variables
    if found:
        steps = ", ".join(str(checkpoint.step) for checkpoint in found)
        raise WorkflowError(f"{folder}: no complete checkpoint (steps {steps} are damaged); empty the folder to start from step 0")
    log.info("no checkpoint in %s: starting from step 0", folder)
    return None


def check_shapes(found: Arrays, wanted: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    """Refuse a checkpoint of another model.

    Raises:
        WorkflowError: naming the first variable that is missing or of another shape.
    """
    for name, shape in wanted.items():
        if name not in found:
            raise WorkflowError(f"{folder}: no variable {name} in the checkpoint; it is of another model, empty the folder")
        if found[name].shape != shape:
            raise WorkflowError(
                f"{folder}: {name} {found[name].shape} in the checkpoint, {shape} in this model; "
                "it is of another model or vocabulary, empty the folder"
            )


def write(folder: Path, step: int, variables: Arrays, keep: int) -> None:
    """Write a checkpoint, then remove all but the newest `keep`. Whatever happens meanwhile, older ones stay complete."""
    work = folder / ".writing"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with tf.device("CPU:0"):
        holder = tf.train.Checkpoint(**{name: tf.Variable(value) for name, value in variables.items()})
    checkpoint = Checkpoint(folder, step)
    holder.write(str(work / checkpoint.prefix.name))
    for path in sorted(work.iterdir(), key=lambda path: path.suffix == ".index"):
        path.replace(folder / path.name)
    work.rmdir()
    kept = listed(folder)[:keep]
    for old in listed(folder)[keep:]:
        for path in sorted(old.files(), key=lambda path: path.suffix != ".index"):
            path.unlink()
    names = [one.prefix.name for one in reversed(kept)]
    # Relative names, so that the folder can be moved.
    tf.compat.v1.train.update_checkpoint_state(str(folder), names[-1], all_model_checkpoint_paths=names)
