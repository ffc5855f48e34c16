"""The graph: raw click logs to a promoted model.

    preprocess -> profile_utilization -> select_strategy -> train -> evaluate -> promote

`promote` always runs: a gate that stays shut is a result with reasons, and belongs into the run as its artifact.
"""

from kfp import dsl

from components.evaluate.component import evaluate
from components.preprocess.component import preprocess
from components.profile_utilization.component import profile_utilization
from components.promote.component import promote
from components.select_strategy.component import select_strategy
from components.train.component import train

STEPS = ("preprocess", "profile_utilization", "select_strategy", "train", "evaluate", "promote")


@dsl.pipeline(
    name="retrain", description="From raw clicks to a promoted CTR model, with the fastest way to train found on the way."
)
def retrain(
    inputs: str,
    jobs: str,
    store: str,
    format: str = "criteo",
    field_size: int = 0,
    feature_size: int = 0,
    id_base: int = 0,
    validation_fraction: float = 0.1,
    embedding_size: int = 32,
    deep_layers: str = "128,64,32",
    optimizer: str = "adam",
    learning_rate: float = 5e-4,
    learning_rate_factor: float = 1.0,
    warmup_steps: int = 0,
    batch_size: int = 1024,
    epochs: int = 1,
    seed: int = 1,
    profile_budget_s: float = 45.0,
    strategy: str = "",
    name: str = "deepfm",
    margin: float = 0.002,
    require_promotion: bool = False,
) -> None:
    """Parameters are plain values; `inputs` is a JSON list, `jobs` a JSON object of where and as whom training jobs run.

    Args:
        store: folder of the model store.
        strategy: single, horovod or parameter_server to force one; empty to let the ladder choose.
    """
    run_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
    data = preprocess(
        inputs=inputs,
        format=format,
        field_size=field_size,
        feature_size=feature_size,
        id_base=id_base,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    profiled = profile_utilization(
        dataset=data.outputs["dataset"],
        embedding_size=embedding_size,
        deep_layers=deep_layers,
        optimizer=optimizer,
        learning_rate=learning_rate,
        learning_rate_factor=learning_rate_factor,
        warmup_steps=warmup_steps,
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        budget_s=profile_budget_s,
        jobs=jobs,
        run_id=run_id,
    )
    selected = select_strategy(
        profile=profiled.outputs["profile"], dataset=data.outputs["dataset"], force=strategy, jobs=jobs, run_id=run_id
    )
    trained = train(dataset=data.outputs["dataset"], plan=selected.outputs["plan"], jobs=jobs, run_id=run_id)
    evaluated = evaluate(model=trained.outputs["model"], dataset=data.outputs["dataset"], store=store, name=name)
    promoted = promote(
        model=trained.outputs["model"],
        evaluation=evaluated.outputs["evaluation"],
        store=store,
        name=name,
        margin=margin,
        require_promotion=require_promotion,
        run_id=run_id,
    )
    # A cached step would train on yesterday's data: KFP's cache key knows neither the code nor what a path holds.
    for task in (data, profiled, selected, trained, evaluated, promoted):
        task.set_caching_options(False)
