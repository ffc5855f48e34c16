"""Where a model comes from: data, plan, code, training job, image; and who put it into the store, and when."""

import getpass
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from components.documents import read_json
from components.errors import NotPromotable

# What an image's build sets to the commit that it was made of, because images hold no checkout.
COMMIT = "CTRFLOW_COMMIT"


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """An empty text, or plan, is not known. `image_digest` is known where the job named its image by it (name@sha256:...)."""

    data_digest: str
    plan: Mapping[str, Any]
    code: str
    job_name: str
    job_arn: str
    image: str
    image_digest: str
    run_id: str


def lineage(training: Path | None, data_digest: str, run_id: str) -> Lineage:
    """What is known of a model's coming about.

    Args:
        training: training.json of the train step, where there is one.
    Raises:
        NotPromotable: it is there and no such document.
    """
    document = _training(training) if training else {}
    job = document.get("job", {})
    image = str(job.get("image", ""))
    return Lineage(
        data_digest=data_digest,
        plan=document.get("plan", {}),
        code=code_version(),
        job_name=str(job.get("name", "")),
        job_arn=str(job.get("arn", "")),
        image=image,
        image_digest=image.partition("@")[2],
        run_id=run_id,
    )


def code_version() -> str:
    """The release, and the commit where it is known: of the image, or of the checkout that this runs from."""
    release, commit = version("ctrflow"), os.environ.get(COMMIT, "")
    root = Path(__file__).parents[2]
    if not commit and (root / ".git").exists():
        git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return release  # no git here, or not our checkout: then the commit is not known
    return f"{release}+{commit}" if commit else release


def who() -> str:
    """user@host; in a cluster the host is the pod, whose name says the run."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number and no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _training(path: Path) -> dict[str, Any]:
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise NotPromotable(f"{path}: not a training.json ({error}); give the one of this model's training") from error
    if not isinstance(document, dict) or not all(isinstance(document.get(key, {}), dict) for key in ("job", "plan")):
        raise NotPromotable(f"{path}: not a training.json; give the one of this model's training")
    return document
