"""The two kinds of jobs, and what SageMaker's API calls them: the operator and the local endpoint read the same names."""

from dataclasses import dataclass
from typing import Literal

from components.errors import JobFailed, ProcessingJobFailed, TrainingJobFailed

Verb = Literal["Create", "Describe", "Stop", "List"]
FINAL = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """`word` is what tells the names of operations and members apart, such as CreateTrainingJob from CreateProcessingJob."""

    word: Literal["Training", "Processing"]
    failure: type[JobFailed]

    @property
    def noun(self) -> str:
        """What people call it."""
        return f"{self.word.lower()} job"

    @property
    def log_group(self) -> str:
        return f"/aws/sagemaker/{self.word}Jobs"

    def operation(self, verb: Verb) -> str:
        """Such as CreateTrainingJob, ListTrainingJobs."""
        return f"{verb}{self.word}Job{'s' if verb == 'List' else ''}"

    def method(self, verb: Verb) -> str:
        """The operation as a method of boto3's client."""
        return f"{verb.lower()}_{self.word.lower()}_job{'s' if verb == 'List' else ''}"

    @property
    def name(self) -> str:
        """The member that holds a job's name; arn, status and summaries alike."""
        return f"{self.word}JobName"

    @property
    def arn(self) -> str:
        return f"{self.word}JobArn"

    @property
    def status(self) -> str:
        return f"{self.word}JobStatus"

    @property
    def summaries(self) -> str:
        return f"{self.word}JobSummaries"


TRAINING = JobKind(word="Training", failure=TrainingJobFailed)
PROCESSING = JobKind(word="Processing", failure=ProcessingJobFailed)
