"""KFP interface of the exit handler."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def finish(
    status: dsl.PipelineTaskFinalStatus,
    name: str,
    notify: str,
    region: str,
    run_id: str,
) -> None:
    """However a run ended: its jobs are stopped, and whoever wants to know is told.

    Args:
        notify: https://... or arn:aws:sns:...; empty: what the secret ctrflow-notify says, if there is one.
        region: of SageMaker; empty: the environment's.
    """
    import os

    from components.clients import use_region
    from components.finish import step

    use_region(region)
    outcome = step.Outcome(
        run_id=run_id, name=name, state=status.state, task=status.pipeline_task_name, error=status.error_message or ""
    )
    step.finish(step.FinishConfig(notify=notify or os.environ.get("CTRFLOW_NOTIFY", "")), outcome)
