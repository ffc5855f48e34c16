"""From raw rows in S3 to a champion in S3, by jobs at the local endpoint whose inputs and outputs lie in S3 too."""

import json
import random
from pathlib import Path
from typing import Any

from components.champion import check_champion
from components.evaluate.step import EvaluateConfig, evaluate
from components.job_settings import JobSettings
from components.model_files import model_digest
from components.plan import ModelSettings, direct_plan
from components.preprocess.config import PreprocessConfig
from components.preprocess.processing_job import Placement, preprocess_on_sagemaker
from components.promote.step import PromoteConfig, promote
from components.storage import open_storage
from components.train.step import TrainStepConfig, train

ROLE = "arn:aws:iam::000000000000:role/ctrflow"
DATASET, STORE, OUTPUT = "s3://clicks/datasets/day1", "s3://clicks/models", "s3://clicks/jobs"
ROWS = 1200


def raw_rows() -> str:
    """Clicks of which the first field's id tells three in four."""
    draw = random.Random(4)
    lines = []
    for row in range(ROWS):
        first = draw.randrange(2)
        clicked = first if draw.random() < 0.75 else 1 - first
        lines.append(f"{clicked} {first}:1 {2 + row % 90}:1\n")
    return "".join(lines)


def test_raw_rows_in_s3_become_a_champion_in_s3(client: Any, s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="clicks", Key="logs/day1.libsvm", Body=raw_rows().encode())
    where = Placement(image="steps:1", role_arn=ROLE, instance_type="ml.m5.large", run_id="2f0c", max_runtime_s=120)
    raw = PreprocessConfig(format="libsvm", feature_size=100, shards=2, processes=1, validation_fraction=0.3)
    preprocess_on_sagemaker(raw, ["s3://clicks/logs/day1.libsvm"], DATASET, where, client)
    # The steps read the manifest, and evaluation the rows; a pipeline's artifacts come to them in the same way.
    dataset = tmp_path / "day1"
    open_storage("s3://clicks/datasets").fetch("day1", dataset)
    (dataset / "train").rename(tmp_path / "train")  # the training job has these rows from S3 alone

    learned = ModelSettings(embedding_size=4, deep_layers=(8,), batch_size=64, learning_rate=0.05, epochs=3)
    jobs = JobSettings(
        image="training:1",
        role_arn=ROLE,
        instance_type="ml.m5.large",
        run_id="2f0c",
        output_uri=OUTPUT,
        data_uri=DATASET,
        poll_s=0.2,
        paid=False,
    )
    model, training = tmp_path / "model", tmp_path / "training.json"
    result = train(TrainStepConfig(), dataset, direct_plan("single", learned), model, training, tmp_path / "train.html", jobs)
    job = json.loads(training.read_text())["job"]["name"]
    keys = {each["Key"] for each in s3.list_objects_v2(Bucket="clicks", Prefix=f"jobs/{job}/")["Contents"]}
    assert keys == {f"jobs/{job}/output/model.tar.gz", f"jobs/{job}/output/output.tar.gz"}
    channels = client.describe_training_job(TrainingJobName=job)["InputDataConfig"]
    assert {each["DataSource"]["S3DataSource"]["S3Uri"].rpartition("/")[0] for each in channels} == {DATASET}

    (tmp_path / "train").rename(dataset / "train")
    evaluation = tmp_path / "evaluation.json"
    found = evaluate(EvaluateConfig(), model, dataset, evaluation, tmp_path / "evaluation.html", STORE)
    assert result.examples > 3 * 0.6 * ROWS
    # Whoever knew the first id alone would reach 0.75.
    assert found.auc is not None
    assert found.auc > 0.7
    out = promote(PromoteConfig(), model, evaluation, STORE, tmp_path / "promotion.json", tmp_path / "promotion.html", training)
    assert (out.promoted, out.version, out.champion_before) == (True, 1, None), out.reason
    champion = check_champion(STORE, "deepfm")
    assert champion is not None
    assert champion.model_digest == model_digest(model)
