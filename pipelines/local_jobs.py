"""Training jobs of one command, on this machine."""

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.errors import InvalidConfig


@contextmanager
def local_jobs() -> Any:
    """JobSettings of training jobs at an endpoint of this command's own, in a folder that vanishes with it.

    A signal ends the jobs first.
    """
    import os
    import tempfile

    from components.images import TRAINING
    from components.job_settings import JobSettings
    from pipelines.local.run import LOCAL_ROLE, STOP_GRACE_S, job_settings
    from pipelines.local.sagemaker import LocalSageMaker
    from pipelines.runs import new_run_id

    if os.environ.get("AWS_ENDPOINT_URL_SAGEMAKER"):
        raise InvalidConfig("AWS_ENDPOINT_URL_SAGEMAKER is set; unset it, this command starts an endpoint of its own")
    with tempfile.TemporaryDirectory(prefix="ctrflow-jobs-") as folder:
        with LocalSageMaker(Path(folder), stop_grace_s=STOP_GRACE_S) as endpoint:
            os.environ["AWS_ENDPOINT_URL_SAGEMAKER"] = endpoint.url
            where = json.loads(job_settings(Path(folder), TRAINING))
            yield JobSettings(**where, role_arn=LOCAL_ROLE, run_id=new_run_id())
