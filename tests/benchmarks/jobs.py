"""Trainings for benchmarks: a Criteo-shaped dataset, and jobs of one or several hosts on this machine, through the launcher."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import planted
from train_step import criteo_shaped

from components.records import Batch

FIELDS, ROWS = 39, 65_536


def write_dataset(folder: Path, ids: int) -> Path:
    """A dataset of Criteo-shaped rows, whose labels mean nothing."""
    labels, cells, values = (np.concatenate(parts) for parts in zip(*criteo_shaped(ids, ROWS // 8), strict=True))
    rows = Batch(labels=labels, ids=cells.astype(np.int64), values=values)
    return planted.write_dataset(folder, rows, rows.rows(slice(0, ROWS // 8)), ids, shards=8)


class Job:
    """One training, started at once; host n has the address 127.0.0.n."""

    def __init__(self, root: Path, dataset: Path, port_base: int, settings: dict[str, Any], hosts: int = 1) -> None:
        names = [f"algo-{index + 1}" for index in range(hosts)]
        addresses = {name: f"127.0.0.{index + 1}" for index, name in enumerate(names)}
        self._bases = [root / name for name in names]
        self._launchers = []
        for name, base in zip(names, self._bases, strict=True):
            for folder in ("input/config", "input/data/manifest"):
                (base / folder).mkdir(parents=True)
            resources = {"current_host": name, "hosts": names, "network_interface_name": "lo"}
            (base / "input/config/resourceconfig.json").write_text(json.dumps(resources))
            texts = {key: str(value) for key, value in settings.items()}
            (base / "input/config/hyperparameters.json").write_text(json.dumps(texts))
            channel = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
            (base / "input/config/inputdataconfig.json").write_text(json.dumps({"train": channel, "manifest": channel}))
            (base / "input/data/train").symlink_to(dataset / "train")
            (base / "input/data/manifest/manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
            own = {"SAGEMAKER_BASE_DIR": str(base), "CTRFLOW_PORT_BASE": str(port_base)}
            own["CTRFLOW_HOST_ADDRESSES"] = json.dumps(addresses)
            with base.with_suffix(".log").open("wb") as log:
                command = [sys.executable, "-m", "components.train.program.launch"]
                self._launchers.append(subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log))

    def training(self) -> dict[str, Any]:
        """What training.json says once the job is over."""
        if any([launcher.wait() for launcher in self._launchers]):
            sys.exit("\n".join(base.with_suffix(".log").read_text() for base in self._bases))
        found: dict[str, Any] = json.loads((self._bases[0] / "output/data/training.json").read_text())
        return found
