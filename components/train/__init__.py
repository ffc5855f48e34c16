"""The train step: a SageMaker training job by the chosen plan."""
