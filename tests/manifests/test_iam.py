"""manifests/iam: the policies allow what the code calls, on what is ours, and nothing else.

Calls are found in the source: methods of AWS clients, pages of them, and those named by a job's kind. botocore's service model says
which operation a method is. How operations are called in IAM is written down here where it differs. Sources: Service Authorization
Reference; SageMaker Developer Guide, "How to use SageMaker AI execution roles".
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.model import ServiceModel

from components.job_kinds import PROCESSING, TRAINING
from components.job_requests import HASH_TAG, NAME_CHARACTERS, RUN_TAG
from components.run_jobs import NAMES
from components.training_jobs import TrainingJob, create_request

ROOT = Path(__file__).parents[2]
IAM = ROOT / "manifests" / "iam"
SERVICES = ("ecr", "logs", "s3", "sagemaker", "sns")
# Clients of Kubeflow and of Kubernetes; and the stand-in of SageMaker, which on AWS is SageMaker itself under the execution role.
OTHER_CLIENTS = {"pipelines/cluster.py", "pipelines/pod_logs.py"}
STAND_IN = "pipelines/local/"
A_CLIENT = re.compile(r"(^|\.|_)client(\(.*\))?$", re.DOTALL)
# Methods of S3Storage and of regular expressions that are called as operations are.
OTHER_METHODS = {"publish", "search"}
UPLOAD = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload")
# Of s3transfer, whose downloads are told size and ETag, so that they ask for neither.
TRANSFERS = {"download": ("GetObject",), "upload": UPLOAD}
IN_IAM = {
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
}
VALUES = {"ACCOUNT": "111122223333", "REGION": "us-east-1", "BUCKET": "runs", "DATA_BUCKET": "clicks", "DATA_PREFIX": "logs"}
VALUES |= {"OIDC": "oidc.eks.us-east-1.amazonaws.com/id/E", "KMS_KEY_ARN": "arn:aws:kms:us-east-1:111122223333:key/k"}
JOB = "arn:aws:sagemaker:us-east-1:111122223333:training-job/"


@cache
def operations() -> dict[str, str]:
    """Operation, as service:Operation, by the name of the client's method."""
    found: dict[str, str] = {}
    for service in SERVICES:
        names = ServiceModel(Loader().load_service_model(service, "service-2")).operation_names
        found |= {xform_name(name): f"{service}:{name}" for name in names}
    return found


def calls_in(source: str, place: str) -> Iterator[str]:
    """Every operation that a module calls; a call that cannot be told fails the test."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and A_CLIENT.search(ast.unparse(node.args[0])):
            yield from _named(node.args[1], place)
        if not isinstance(node.func, ast.Attribute):
            continue
        receiver, method = ast.unparse(node.func.value), node.func.attr
        if receiver == "self._mlflow":
            continue  # MLflow's own methods, some of which have the names of SageMaker's
        if receiver == "manager":
            yield from (f"s3:{name}" for name in TRANSFERS[method])
        elif A_CLIENT.search(receiver):
            if method == "get_paginator":
                yield from _named(node.args[0], place)
            else:
                assert method in operations(), f"{place}:{node.lineno}: {receiver}.{method} is no operation of {SERVICES}"
                yield operations()[method]
        else:
            unknown = method in operations() and method not in OTHER_METHODS
            assert not unknown, f"{place}:{node.lineno}: {receiver}.{method}: call clients client, so that this test finds them"


def _named(name: ast.expr, place: str) -> Iterator[str]:
    """A literal name, or kind.method("Stop"), which is one of either kind of job."""
    match name:
        case ast.Constant(value=str(method)):
            yield operations()[method]
        case ast.Call(func=ast.Attribute(attr="method"), args=[ast.Constant(value=verb)]):
            yield from (operations()[kind.method(verb)] for kind in (TRAINING, PROCESSING))
        case _:
            pytest.fail(f"{place}:{name.lineno}: {ast.unparse(name)}: which operation it is cannot be told from the source")


@cache
def code() -> dict[str, str]:
    files = [file for folder in ("components", "pipelines") for file in sorted((ROOT / folder).rglob("*.py"))]
    named = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    return {name: text for name, text in named.items() if name not in OTHER_CLIENTS and not name.startswith(STAND_IN)}


def actions_of_code() -> set[str]:
    found = {IN_IAM.get(call, call) for name, text in code().items() for call in calls_in(text, name)}
    # What a request asks for beside its own action. Source: Service Authorization Reference, dependent actions.
    job = TrainingJob(
        base_name="ctrflow-x", run_id="r", task="train", image="i", entrypoint=("x",), role_arn="arn",
        instance_type="ml.c7i.4xlarge", instance_count=1, max_runtime_s=60, output_uri="s3://runs/jobs",
    )  # fmt: skip
    return found | {
        {"RoleArn": "iam:PassRole", "Tags": "sagemaker:AddTags"}[key] for key in create_request(job) if key in ("RoleArn", "Tags")
    }


def statements(name: str) -> list[dict[str, Any]]:
    text = re.sub(r"\$\{(\w+)\}", lambda found: VALUES[found[1]], (IAM / f"{name}.json").read_text(encoding="utf-8"))
    document = json.loads(text)
    assert document["Version"] == "2012-10-17"
    return list(document["Statement"])


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def actions(name: str) -> set[str]:
    return {action for each in statements(name) for action in _list(each["Action"])}


def allows(name: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """IAM's rules, as far as these policies use them."""
    context = context or {}
    checks = {
        "StringEquals": lambda key, value: context.get(key) in _list(value),
        "StringLike": lambda key, value: fnmatchcase(context.get(key, ""), value),
        "Bool": lambda key, value: context.get(key) == value,
        "Null": lambda key, value: (key not in context) == (value == "true"),
    }
    return any(
        action in _list(each["Action"])
        and any(fnmatchcase(resource, pattern) for pattern in _list(each["Resource"]))
        and all(checks[how](key, value) for how, pairs in each.get("Condition", {}).items() for key, value in pairs.items())
        for each in statements(name)
    )


def test_every_client_is_of_a_service_whose_calls_are_looked_for() -> None:
    made = {found for text in code().values() for found in re.findall(r'(?:\bclient|_client)\(\s*"([a-z0-9]+)"', text)}
    assert made == set(SERVICES)


def test_operator_and_submitter_may_call_what_the_code_calls_and_nothing_else() -> None:
    assert actions("operator") | actions("submit") == actions_of_code()
    assert {action for action in actions_of_code() if action.startswith("ecr:")} == actions("submit")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("client.delete_object(Bucket=b, Key=k)", {"s3:DeleteObject"}),
        ("self._client.list_tags(ResourceArn=arn)", {"sagemaker:ListTags"}),
        ("sns_client(region=text.split(':')[3]).publish(TopicArn=t)", {"sns:Publish"}),
        ("client.get_paginator('list_objects_v2').paginate(Bucket=b)", {"s3:ListObjectsV2"}),
        ("getattr(client, kind.method('Stop'))(**which)", {"sagemaker:StopTrainingJob", "sagemaker:StopProcessingJob"}),
        ("manager.upload(path, bucket, key)", {f"s3:{name}" for name in UPLOAD}),
        ("storage.publish(files, folder)", set()),
    ],
)
def test_calls_are_found(source: str, expected: set[str]) -> None:
    assert set(calls_in(source, "here")) == expected


@pytest.mark.parametrize("source", ["s3.put_object(Bucket=b)", "client.upload_file(p, b, k)"])
def test_calls_that_cannot_be_told_are_refused(source: str) -> None:
    with pytest.raises(AssertionError):
        list(calls_in(source, "here"))


def test_the_execution_role_may_do_what_aws_says_that_a_job_needs() -> None:
    expected = (
        "cloudwatch:PutMetricData logs:CreateLogStream logs:PutLogEvents logs:CreateLogGroup logs:DescribeLogStreams s3:GetObject"
    )
    expected += " s3:PutObject s3:ListBucket ecr:GetAuthorizationToken ecr:BatchCheckLayerAvailability ecr:GetDownloadUrlForLayer"
    assert actions("execution") == {*expected.split(), "ecr:BatchGetImage"}


TAGS = {f"aws:RequestTag/{RUN_TAG}": "r", f"aws:RequestTag/{HASH_TAG}": "h"}
PASSED = {"iam:PassedToService": "sagemaker.amazonaws.com"}
ROLE = "arn:aws:iam::111122223333:role/"
LOGS = "arn:aws:logs:us-east-1:111122223333:log-group:/aws/sagemaker/"


@pytest.mark.parametrize(
    ("policy", "action", "resource", "context", "expected"),
    [
        ("operator", "sagemaker:CreateTrainingJob", f"{JOB}ctrflow-train-0a", TAGS, True),
        ("operator", "sagemaker:CreateTrainingJob", f"{JOB}ctrflow-train-0a", {}, False),
        ("operator", "sagemaker:CreateTrainingJob", f"{JOB}somebody-elses", TAGS, False),
        ("operator", "sagemaker:StopTrainingJob", f"{JOB}ctrflow-train-0a", {}, True),
        ("operator", "sagemaker:StopTrainingJob", f"{JOB}somebody-elses", {}, False),
        ("operator", "iam:PassRole", f"{ROLE}ctrflow-execution", PASSED, True),
        ("operator", "iam:PassRole", f"{ROLE}ctrflow-execution", {"iam:PassedToService": "ec2.amazonaws.com"}, False),
        ("operator", "iam:PassRole", f"{ROLE}admin", PASSED, False),
        ("operator", "s3:GetObject", "arn:aws:s3:::clicks/logs/day1.tsv", {}, True),
        ("operator", "s3:PutObject", "arn:aws:s3:::clicks/logs/day1.tsv", {}, False),
        ("operator", "s3:PutObject", "arn:aws:s3:::runs/models/deepfm/champion.json", {}, True),
        ("operator", "s3:GetObject", "arn:aws:s3:::runs/secrets/key", {}, False),
        ("operator", "s3:DeleteObject", "arn:aws:s3:::runs/models/deepfm/champion.json", {}, False),
        # The HEAD of what is not there is 404 only for who may list, whatever the prefix.
        ("operator", "s3:ListBucket", "arn:aws:s3:::runs", {}, True),
        ("operator", "logs:GetLogEvents", f"{LOGS}TrainingJobs:log-stream:ctrflow-train-0a/algo-1-1", {}, True),
        ("operator", "logs:GetLogEvents", f"{LOGS}Endpoints/x:log-stream:y", {}, False),
        ("execution", "s3:PutObject", "arn:aws:s3:::runs/jobs/ctrflow-train-0a/output/model.tar.gz", {}, True),
        ("execution", "s3:PutObject", "arn:aws:s3:::runs/models/deepfm/champion.json", {}, False),
        ("execution-kms", "kms:CreateGrant", VALUES["KMS_KEY_ARN"], {}, False),
        ("operator-kms", "kms:Decrypt", VALUES["KMS_KEY_ARN"], {"kms:ViaService": "s3.us-east-1.amazonaws.com"}, True),
        ("operator-kms", "kms:Decrypt", VALUES["KMS_KEY_ARN"], {}, False),
    ],
)
def test_what_is_allowed(policy: str, action: str, resource: str, context: dict[str, str], expected: bool) -> None:
    assert allows(policy, action, resource, context) is expected


def test_the_policies_know_our_jobs_by_the_names_that_the_code_gives() -> None:
    assert NAMES == "ctrflow-"
    assert NAME_CHARACTERS == 63
    assert f"job/{NAMES}*" in (IAM / "operator.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("policy", "principal"),
    [
        ("execution", {"Service": "sagemaker.amazonaws.com"}),
        ("operator", {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/E"}),
        ("submit", {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/E"}),
    ],
)
def test_a_role_is_taken_by_one_principal_under_conditions(policy: str, principal: dict[str, str]) -> None:
    (only,) = statements(f"{policy}-trust")
    assert only["Principal"] == principal
    account = {"ctrflow-runner": "operator", "ctrflow-submitter": "submit"}
    if policy == "execution":
        assert only["Condition"]["StringEquals"] == {"aws:SourceAccount": "111122223333"}
    else:
        *_, name = only["Condition"]["StringEquals"][f"{VALUES['OIDC']}:sub"].split(":")
        assert account[name] == policy
        assert only["Condition"]["StringEquals"][f"{VALUES['OIDC']}:aud"] == "sts.amazonaws.com"


@pytest.mark.parametrize("file", sorted(IAM.glob("*.json")), ids=lambda file: file.stem)
def test_a_policy_only_allows_names_what_it_allows_and_is_documented(file: Path) -> None:
    found = statements(file.stem)
    assert {each["Effect"] for each in found} == {"Allow"}
    assert len({each["Sid"] for each in found}) == len(found)
    assert not [action for action in actions(file.stem) if "*" in action]
    readme = (IAM / "README.md").read_text(encoding="utf-8")
    assert f"`{file.name}`" in readme
    assert set(re.findall(r"\$\{(\w+)\}", file.read_text(encoding="utf-8"))) <= set(re.findall(r"`\$\{(\w+)\}`", readme))
