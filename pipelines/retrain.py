"""The graph: raw click logs to a promoted model.

    preprocess -> profile_utilization -> select_strategy -> train -> evaluate -> promote      then, whatever the end: finish

`promote` always runs: a gate that stays shut is a result with reasons, and belongs into the run as its artifact. `finish` stops
jobs that are left over, and tells who wants to know.
"""

from dataclasses import dataclass

from kfp import dsl, kubernetes

from components.evaluate.component import evaluate
from components.finish.component import finish
from components.learning import Learning
from components.preprocess.component import preprocess
from components.profile_utilization.component import profile_utilization
from components.promote.component import promote
from components.select_strategy.component import select_strategy
from components.train.component import train

STEPS = ("preprocess", "profile_utilization", "select_strategy", "train", "evaluate", "promote")
HOUR_S = 3600
DAY_S = 24 * HOUR_S
# A webhook is a secret: key `url` of this Kubernetes secret, which need not be there.
NOTIFY_SECRET, NOTIFY_VARIABLE = "ctrflow-notify", "CTRFLOW_NOTIFY"
# Where a cluster gives its pods no role of AWS, keys are this secret, which need not be there either.
AWS_SECRET, AWS_VARIABLES = "ctrflow-aws", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a step's pod gets, and how long. Steps with `retries` go on where they were: a job of the same name is followed."""

    title: str
    cpu: str
    memory: str
    hours: int
    retries: int = 0

    def give(self, task: dsl.PipelineTask) -> None:
        """Say it of a task."""
        task.set_display_name(self.title)
        # A cached step would train on yesterday's data: KFP's cache key knows neither the code nor what a path holds.
        task.set_caching_options(False)
        task.set_cpu_request(self.cpu).set_memory_request(self.memory).set_memory_limit(self.memory)
        if self.retries:
            task.set_retry(self.retries, backoff_duration="60s", backoff_factor=2.0, backoff_max_duration="600s")
        kubernetes.set_timeout(task, self.hours * HOUR_S)
        kubernetes.use_secret_as_env(task, AWS_SECRET, {name: name for name in AWS_VARIABLES}, optional=True)
        kubernetes.add_pod_label(task, "app.kubernetes.io/part-of", "ctrflow")


# Steps that run jobs wait most of the time; preprocess and evaluate work themselves.
PREPROCESS = Needs(title="Preprocess raw clicks", cpu="4", memory="16Gi", hours=6)
PROFILE = Needs(title="Profile utilization", cpu="1", memory="4Gi", hours=2, retries=2)
SELECT = Needs(title="Select strategy", cpu="1", memory="4Gi", hours=4, retries=2)
TRAIN = Needs(title="Train", cpu="1", memory="8Gi", hours=25, retries=3)
EVALUATE = Needs(title="Evaluate", cpu="4", memory="16Gi", hours=4)
PROMOTE = Needs(title="Promote", cpu="1", memory="4Gi", hours=1, retries=2)
FINISH = Needs(title="Finish", cpu="500m", memory="2Gi", hours=1)


@dsl.pipeline(
    name="retrain",
    description="From raw clicks to a promoted CTR model, with the fastest way to train found on the way.",
    pipeline_config=dsl.PipelineConfig(ttl_seconds_after_finished=7 * DAY_S, active_deadline_seconds=2 * DAY_S),
)
def retrain(
    inputs: str,
    jobs: str,
    store: str,
    role: str,
    region: str = "",
    run_date: str = "",
    days: int = 1,
    notify: str = "",
    preprocessing: str = '{"format": "criteo"}',
    data_limits: str = "{}",
    model: str = Learning.model,
    own_model: str = Learning.own_model,
    embedding_size: int = Learning.embedding_size,
    deep_layers: str = ",".join(map(str, Learning.deep_layers)),
    cross_layers: int = Learning.cross_layers,
    cross_rank: int = Learning.cross_rank,
    dropout: str = "",
    batch_norm: bool = Learning.batch_norm,
    batch_norm_momentum: float = Learning.batch_norm_momentum,
    l2: float = Learning.l2,
    mixed_precision: bool = Learning.mixed_precision,
    optimizer: str = Learning.optimizer,
    momentum: float = Learning.momentum,
    ftrl_l1: float = Learning.ftrl_l1,
    ftrl_l2: float = Learning.ftrl_l2,
    learning_rate: float = Learning.learning_rate,
    learning_rate_factor: float = Learning.learning_rate_factor,
    warmup_steps: int = Learning.warmup_steps,
    batch_size: int = 1024,
    epochs: int = Learning.epochs,
    seed: int = Learning.seed,
    profile_budget_s: float = 0.0,
    strategy: str = "",
    limits: str = "{}",
    instances: str = "",
    warm_start: bool = False,
    name: str = "deepfm",
    slices: str = "",
    margin: float = 0.002,
    policy: str = "{}",
    require_promotion: bool = False,
) -> None:
    """Parameters are plain values; `inputs` is a JSON list, `jobs` a JSON object of where training jobs run.

    Args:
        store: folder of the model store, or s3://bucket/folder.
        role, region: SageMaker execution role and region; no region: the environment's.
        run_date: YYYY-MM-DD in the place of {date} in `inputs`; empty: today in UTC. days: of the window that ends with it.
        notify: whom the end is told, https://... or arn:aws:sns:...; empty: what a secret says, if there is one.
        policy: a JSON object of the fields of promote's Policy; what is left out has its default.
        preprocessing: a JSON object of the fields of PreprocessConfig, its own seed among them; what is left out has its default.
        data_limits: a JSON object of the fields of DataLimits: what training rows must keep to, or the run stops before training.
        model to ftrl_l2: see components.learning; `deep_layers` and `dropout` are numbers separated by commas.
        warm_start: begin with the champion's weights, if there is one.
        slices: fields by whose values evaluate measures the rows apart, separated by commas.
        limits: a JSON object of what a plan may cost and take, the fields of components.select_strategy.limits.Limits.
        instances: the text of a CSV file of own prices and types, laid over the catalogue; empty: none.
        strategy: single, horovod or parameter_server to force one; empty to let the ladder choose.
    """
    run_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
    told = finish(name=name, notify=notify, region=region, run_id=run_id)
    kubernetes.use_secret_as_env(told, NOTIFY_SECRET, {"url": NOTIFY_VARIABLE}, optional=True)
    with dsl.ExitHandler(told):
        data = preprocess(
            inputs=inputs,
            settings=preprocessing,
            store=store,
            name=name,
            data_limits=data_limits,
            run_date=run_date,
            days=days,
        )
        profiled = profile_utilization(
            dataset=data.outputs["dataset"],
            model=model,
            own_model=own_model,
            embedding_size=embedding_size,
            deep_layers=deep_layers,
            cross_layers=cross_layers,
            cross_rank=cross_rank,
            dropout=dropout,
            batch_norm=batch_norm,
            batch_norm_momentum=batch_norm_momentum,
            l2=l2,
            mixed_precision=mixed_precision,
            optimizer=optimizer,
            momentum=momentum,
            ftrl_l1=ftrl_l1,
            ftrl_l2=ftrl_l2,
            learning_rate=learning_rate,
            learning_rate_factor=learning_rate_factor,
            warmup_steps=warmup_steps,
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            budget_s=profile_budget_s,
            instances=instances,
            jobs=jobs,
            role=role,
            region=region,
            run_id=run_id,
        )
        selected = select_strategy(
            profile=profiled.outputs["profile"],
            dataset=data.outputs["dataset"],
            force=strategy,
            limits=limits,
            instances=instances,
            jobs=jobs,
            role=role,
            region=region,
            run_id=run_id,
        )
        trained = train(
            dataset=data.outputs["dataset"],
            plan=selected.outputs["plan"],
            store=store,
            name=name,
            warm_start=warm_start,
            jobs=jobs,
            role=role,
            region=region,
            run_id=run_id,
        )
        evaluated = evaluate(
            model=trained.outputs["model"],
            dataset=data.outputs["dataset"],
            champion_dataset=data.outputs["champion_dataset"],
            store=store,
            name=name,
            slices=slices,
        )
        promoted = promote(
            model=trained.outputs["model"],
            evaluation=evaluated.outputs["evaluation"],
            training=trained.outputs["training"],
            preprocess_report=data.outputs["report"],
            profile_report=profiled.outputs["report"],
            select_report=selected.outputs["report"],
            train_report=trained.outputs["report"],
            evaluate_report=evaluated.outputs["report"],
            store=store,
            name=name,
            margin=margin,
            policy=policy,
            require_promotion=require_promotion,
            run_id=run_id,
        )
    needs = {data: PREPROCESS, profiled: PROFILE, selected: SELECT, trained: TRAIN, evaluated: EVALUATE, promoted: PROMOTE}
    for task, needed in {**needs, told: FINISH}.items():
        needed.give(task)
