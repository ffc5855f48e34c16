"""finish: the exit handler of a run. Stops the jobs that the run has left, then tells whoever wants to know."""

import json
import logging
import urllib.request
from dataclasses import asdict, dataclass

from components.clients import sagemaker_client, sns_client
from components.errors import RunNotSucceeded, WorkflowError
from components.run_jobs import stop_jobs

log = logging.getLogger(__name__)
TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class FinishConfig:
    """`notify` is whom to tell: https://... (a webhook), arn:aws:sns:..., or nobody."""

    notify: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended, in KFP's words: SUCCEEDED, FAILED or CANCELLED, and what failed."""

    run_id: str
    name: str
    state: str
    task: str = ""
    error: str = ""

    @property
    def sentence(self) -> str:
        why = f": {self.task}: {' '.join(self.error.split())}" if self.error else ""
        return f"ctrflow: retraining of {self.name}, run {self.run_id}: {self.state}{why}"


def finish(config: FinishConfig, outcome: Outcome) -> None:
    """Stop what the run has left running, and tell how it ended.

    Raises:
        RunNotSucceeded: the run was not a success, so that no cluster shows it as one; or its jobs may still be running, or the
            word did not get through.
    """
    trouble = []
    try:
        stopped = stop_jobs(outcome.run_id, sagemaker_client())
        log.info("%s; %d of its jobs were still running", outcome.sentence, len(stopped))
    except WorkflowError as error:  # whoever waits for word gets it all the same
        trouble.append(str(error))
    try:
        if config.notify:
            tell(config.notify, outcome)
    except Exception as error:  # whatever it was, a failed run must be called one
        trouble.append(f"notify {config.notify.split('?')[0]}: {error}; correct it, or make the secret ctrflow-notify anew")
    if outcome.state != "SUCCEEDED":
        trouble.insert(0, outcome.sentence)
    if trouble:
        raise RunNotSucceeded("; ".join(trouble))


def tell(whom: str, outcome: Outcome) -> None:
    """A message to an SNS topic, or a JSON document to a webhook, in which `text` is what chat services show."""
    if whom.startswith("arn:"):
        message = {"Subject": subject_of(outcome.sentence), "Message": outcome.sentence}
        sns_client(region=whom.split(":")[3]).publish(TopicArn=whom, **message)
        return
    body = json.dumps({"text": outcome.sentence, **asdict(outcome)}).encode()
    request = urllib.request.Request(whom, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        log.info("told %s", whom.split("?")[0])


def subject_of(sentence: str) -> str:
    """What SNS takes as a subject: less than 100 printable characters of ASCII."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in sentence)[:99]
