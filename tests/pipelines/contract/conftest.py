"""A server that takes only what Kubeflow Pipelines' own API description allows, and does with runs what Kubeflow Pipelines does.

The description is that of the pinned kfp-server-api, which KFP generates from its v2beta1 swagger: every path, query parameter and
message, with three rewrites. A field that is not in it is refused; an int64 is a string or an integer, as protobuf's JSON has it;
bytes and dates are strings. What no description says, and the server checks all the same (parameters against the pipeline, cron,
names that must be unique, states), is written down here by hand. This is a contract and no cluster: nothing was tried on one.
"""

import inspect
import json
import re
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import kfp_server_api
import pytest
import yaml

# Fields of the description that are int64, which generated Python calls str.
INT64 = {"max_concurrency", "interval_second", "pipeline_context_id", "pipeline_run_context_id", "execution_id", "long_value"}
STEPS = ("preprocess", "profile-utilization", "select-strategy", "train", "evaluate", "promote")
ACTIVE = ("PENDING", "RUNNING", "CANCELING")


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON schema of a type of the description."""
    simple = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "datetime": "string"}
    if kind in simple:
        return {"type": simple[kind]}
    if kind == "object":
        return {}
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": schema_of(found[1])}
    if found := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return {"type": "object", "additionalProperties": schema_of(found[1])}
    model = getattr(kfp_server_api, kind)
    if values := getattr(model, "allowable_values", None):
        return {"enum": values}
    if kind in ("PipelineTaskDetailChildTask", "GoogleRpcStatus", "ProtobufAny"):
        return {"type": "object"}
    properties = {model.attribute_map[name]: schema_of(part) for name, part in model.openapi_types.items()}
    properties.update({name: {"type": ["string", "integer"]} for name in INT64 & properties.keys()})
    return {"type": "object", "properties": properties, "additionalProperties": False}


class Operation:
    """One operation of the description, read from its generated method."""

    def __init__(self, method: Any) -> None:
        source = inspect.getsource(method)
        self.path, self.verb = re.search(r"call_api\(\s*'([^']+)', '(\w+)'", source).groups()  # type: ignore[union-attr]
        self.answers = re.search(r"response_type='([^']+)'", source)[1]  # type: ignore[index]
        self.query = set(re.findall(r"query_params\.append\(\('(\w+)'", source))
        body = re.search(r"body_params = local_var_params\['(\w+)'\]", source)
        self.body = re.search(rf":type {body[1]}: (\S+)", source)[1] if body else None  # type: ignore[index]
        self.pattern = re.compile(re.sub(r"\\\{[^}]+\\\}", "([^/:]+)", re.escape(self.path)))
        self.name = method.__name__.removesuffix("_with_http_info")


def description() -> list[Operation]:
    """Every operation, those with the most fixed paths first."""
    services = [value for name, value in vars(kfp_server_api).items() if name.endswith("ServiceApi")]
    methods = [method for service in services for name, method in vars(service).items() if name.endswith("_with_http_info")]
    return sorted(map(Operation, methods), key=lambda operation: operation.path.count("{"))


class Server:
    """The state of the server; `calls` are the names of operations that were asked for."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.now = datetime(2026, 12, 2, 16, 0, tzinfo=UTC)
        self.calls: list[str] = []
        self.bodies: list[tuple[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.fails_at = ""
        self.outage = 0
        self.page = 2
        self.pipelines: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.experiments: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.schedules: dict[str, Any] = {}
        self.lock = threading.RLock()

    # What every request passes.

    def answer(self, verb: str, url: str, headers: Any, body: bytes) -> Any:
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if any(headers.get(name) != value for name, value in self.headers.items()):
            raise Refused(401, "Unauthenticated")
        if log := re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log", parts.path):
            return self.pod_log(log[1], log[2], query)
        for operation in self.operations:
            found = operation.pattern.fullmatch(parts.path)
            if found and operation.verb == verb:
                break
        else:
            raise Refused(404, f"no operation {verb} {parts.path}")
        if unknown := query.keys() - operation.query:
            raise Refused(400, f"{operation.name}: unknown query parameters {unknown}")
        self.calls.append(operation.name)
        if self.outage:
            self.outage -= 1
            raise Refused(503, "upstream connect error")
        if operation.name.startswith("upload_pipeline"):
            document = next(yaml.safe_load_all(body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]))
        else:
            document = json.loads(body) if body else None
            self.check(operation, document)
        with self.lock:
            answered = getattr(self, operation.name)(*found.groups(), query=query, body=document)
        jsonschema.validate(answered, schema_of(operation.answers))  # the server keeps to the description, too
        return answered

    def gone(self, *_: object, **__: object) -> Any:
        """An operation that breaks."""
        raise Refused(500, "connection to the database is gone")

    def check(self, operation: Operation, document: Any) -> None:
        if (document is None) != (operation.body is None):
            raise Refused(400, f"{operation.name}: {'no ' if document is None else 'a '}body")
        if operation.body:
            try:
                jsonschema.validate(document, schema_of(operation.body))
            except jsonschema.ValidationError as error:
                raise Refused(400, f"{operation.name}: {error.json_path}: {error.message}") from error
            self.bodies.append((operation.name, document))

    def listed(self, what: str, everything: list[Any], query: dict[str, str]) -> dict[str, Any]:
        """A page, filtered by equality as filter.proto has it."""
        if query.get("filter"):
            given = json.loads(query["filter"])
            for predicate in given["predicates"]:
                if unknown := predicate.keys() - {"operation", "key", "string_value", "stringValue"}:
                    raise Refused(400, f"unknown fields of a predicate {unknown}")
                assert predicate["operation"] in ("EQUALS", 1)
                wanted = predicate.get("string_value", predicate.get("stringValue"))
                everything = [each for each in everything if each[predicate["key"]] == wanted]
        start, size = int(query.get("page_token") or 0), min(int(query.get("page_size") or 20), self.page)
        more = {"next_page_token": str(start + size)} if start + size < len(everything) else {}
        return {what: everything[start : start + size], "total_size": len(everything), **more}

    def time(self) -> str:
        return self.now.isoformat().replace("+00:00", "Z")

    # Operations, under the names of the description.

    def healthz_service_get_healthz(self, **_: Any) -> Any:
        return {"multi_user": False}

    def pipeline_service_list_pipelines(self, query: dict[str, str], **_: Any) -> Any:
        return self.listed("pipelines", list(self.pipelines.values()), query)

    def pipeline_service_create_pipeline(self, body: Any, **_: Any) -> Any:
        if any(each["display_name"] == body["display_name"] for each in self.pipelines.values()):
            raise Refused(409, f"pipeline {body['display_name']} already exists")
        made = {**body, "pipeline_id": str(uuid.uuid4()), "created_at": self.time()}
        return self.pipelines.setdefault(made["pipeline_id"], made)

    def pipeline_service_list_pipeline_versions(self, pipeline: str, query: dict[str, str], **_: Any) -> Any:
        found = [each for each in self.versions.values() if each["pipeline_id"] == pipeline]
        return self.listed("pipeline_versions", found, query)

    def upload_pipeline_version(self, query: dict[str, str], body: Any, **_: Any) -> Any:
        if query["pipelineid"] not in self.pipelines:
            raise Refused(404, f"pipeline {query['pipelineid']} not found")
        if any(each["display_name"] == query["name"] for each in self.versions.values()):
            raise Refused(409, f"version {query['name']} already exists")
        made = {
            "pipeline_id": query["pipelineid"],
            "pipeline_version_id": str(uuid.uuid4()),
            "display_name": query["name"],
            "created_at": self.time(),
            "pipeline_spec": body,
        }
        return self.versions.setdefault(made["pipeline_version_id"], made)

    def experiment_service_list_experiments(self, query: dict[str, str], **_: Any) -> Any:
        return self.listed("experiments", list(self.experiments.values()), query)

    def experiment_service_create_experiment(self, body: Any, **_: Any) -> Any:
        made = {**body, "experiment_id": str(uuid.uuid4()), "created_at": self.time()}
        return self.experiments.setdefault(made["experiment_id"], made)

    def checked(self, body: Any) -> Any:
        """What the server holds against the pipeline before it takes a run or a recurring run."""
        if body.get("experiment_id") not in self.experiments:
            raise Refused(404, f"experiment {body.get('experiment_id')} not found")
        version = self.versions.get(body["pipeline_version_reference"]["pipeline_version_id"])
        if not version:
            raise Refused(404, "pipeline version not found")
        known = version["pipeline_spec"]["root"]["inputDefinitions"]["parameters"]
        given = body["runtime_config"].get("parameters", {})
        if extra := given.keys() - known.keys():
            raise Refused(400, f"parameter(s) provided are not required by pipeline: {extra}")
        kinds = {"STRING": str, "BOOLEAN": bool, "NUMBER_INTEGER": int, "NUMBER_DOUBLE": (int, float)}
        for name, each in known.items():
            if name not in given and not each.get("isOptional"):
                raise Refused(400, f"parameter {name} is not optional, yet has neither default value nor user provided value")
            if name in given and not isinstance(given[name], kinds[each["parameterType"]]):
                raise Refused(400, f"input parameter {name} requires type {each['parameterType']}")
        return body

    def run_service_create_run(self, body: Any, **_: Any) -> Any:
        return self.begin(self.checked(body))

    def begin(self, body: Any, **more: Any) -> Any:
        run = {**body, **more, "run_id": str(uuid.uuid4()), "created_at": self.time(), "state": "PENDING"}
        tasks = [{"display_name": "root", "state": "RUNNING"}, {"display_name": "root-driver", "state": "SUCCEEDED"}]
        run["run_details"] = {"task_details": tasks}
        return self.runs.setdefault(run["run_id"], run)

    def found(self, where: dict[str, Any], which: str) -> Any:
        if which not in where:
            raise Refused(404, f"{which} not found")
        return where[which]

    def run_service_get_run(self, run_id: str, **_: Any) -> Any:
        run = self.found(self.runs, run_id)
        answered = json.loads(json.dumps(run))
        self.go_on(run)
        return answered

    def go_on(self, run: Any) -> None:
        """What happens between two looks: one step begins and ends."""
        tasks = run["run_details"]["task_details"]
        ours = {task["display_name"]: task for task in tasks if task["display_name"] in (*STEPS, "finish")}
        if run["state"] == "PENDING":
            run["state"] = "RUNNING"
        elif run["state"] == "CANCELING":
            run["state"] = "CANCELED"
            for task in ours.values():
                task["state"] = "CANCELED" if task["state"] == "RUNNING" else task["state"]
        if run["state"] != "RUNNING":
            return
        under_way = [task for task in ours.values() if task["state"] == "RUNNING"]
        for task in under_way:
            if task["display_name"] == self.fails_at:
                task["state"] = "FAILED"
                run.update(state="FAILED", error={"code": 2, "message": f"step {self.fails_at} exited with 1"})
                return
            task["state"] = "SUCCEEDED"
        following = [step for step in (*STEPS, "finish") if step not in ours]
        if not following:
            run.update(state="SUCCEEDED", finished_at=self.time())
            return
        self.now += timedelta(seconds=1)
        name, pod = following[0], f"retrain-x7-{following[0]}"
        tasks.append({"display_name": f"{name}-driver", "state": "SUCCEEDED", "pod_name": f"{pod}-driver"})
        children = [{"pod_name": pod}]
        tasks.append({"display_name": name, "state": "RUNNING", "start_time": self.time(), "child_tasks": children})

    def run_service_list_runs(self, query: dict[str, str], **_: Any) -> Any:
        if query.get("sort_by", "") not in ("", "created_at", "created_at desc"):
            raise Refused(400, f"cannot sort by {query['sort_by']}")
        runs = sorted(self.runs.values(), key=lambda run: str(run["created_at"]), reverse="desc" in query.get("sort_by", ""))
        return self.listed("runs", runs, query)

    def run_service_terminate_run(self, run_id: str, **_: Any) -> Any:
        run = self.found(self.runs, run_id)
        if run["state"] not in ACTIVE:
            raise Refused(400, f"run {run_id} is {run['state']} and cannot be terminated")
        run["state"] = "CANCELING"
        return {}

    def run_service_retry_run(self, run_id: str, **_: Any) -> Any:
        run = self.found(self.runs, run_id)
        if run["state"] not in ("FAILED", "CANCELED"):
            raise Refused(400, f"run {run_id} must be in Failed or Error to be retried")
        details = run["run_details"]
        details["task_details"] = [task for task in details["task_details"] if task["state"] not in ("FAILED", "CANCELED")]
        run.pop("error", None)
        run["state"] = "RUNNING"
        return {}

    def recurring_run_service_create_recurring_run(self, body: Any, **_: Any) -> Any:
        self.checked(body)
        if not 1 <= int(body["max_concurrency"]) <= 10:
            raise Refused(400, "the max concurrency of the job is out of range")
        if len(body["trigger"]) != 1:
            raise Refused(400, "a trigger is one schedule")
        if "cron_schedule" in body["trigger"]:
            matches(body["trigger"]["cron_schedule"]["cron"], self.now)
        status = "ENABLED" if body["mode"] == "ENABLE" else "DISABLED"
        made = {**body, "recurring_run_id": str(uuid.uuid4()), "created_at": self.time(), "status": status}
        return self.schedules.setdefault(made["recurring_run_id"], made)

    def recurring_run_service_list_recurring_runs(self, query: dict[str, str], **_: Any) -> Any:
        return self.listed("recurringRuns", list(self.schedules.values()), query)

    def recurring_run_service_enable_recurring_run(self, which: str, **_: Any) -> Any:
        self.found(self.schedules, which)["status"] = "ENABLED"
        return {}

    def recurring_run_service_disable_recurring_run(self, which: str, **_: Any) -> Any:
        self.found(self.schedules, which)["status"] = "DISABLED"
        return {}

    def recurring_run_service_delete_recurring_run(self, which: str, **_: Any) -> Any:
        self.found(self.schedules, which)
        del self.schedules[which]
        return {}

    def pod_log(self, namespace: str, pod: str, query: dict[str, str]) -> Any:
        if namespace != "ads" or query != {"container": "main"}:
            raise Refused(404, f"pods {pod} not found in {namespace}")
        return f"what {pod} printed\n"

    # What time does.

    def move_clock(self, to: datetime) -> list[Any]:
        """Recurring runs fire: the latest time that was missed alone with no_catchup, and never more at a time than allowed."""
        begun = []
        for schedule in self.schedules.values():
            times, at = [], self.now + timedelta(minutes=1)
            while at <= to:
                if schedule["status"] == "ENABLED" and matches(schedule["trigger"]["cron_schedule"]["cron"], at):
                    times.append(at)
                at += timedelta(minutes=1)
            for time in times[-1:] if schedule.get("no_catchup") else times:
                ours = [run for run in self.runs.values() if run.get("recurring_run_id") == schedule["recurring_run_id"]]
                if sum(run["state"] in ACTIVE for run in ours) < int(schedule["max_concurrency"]):
                    keys = ("experiment_id", "display_name", "pipeline_version_reference", "runtime_config")
                    body = {key: schedule[key] for key in keys}
                    begun.append(self.begin(body, recurring_run_id=schedule["recurring_run_id"], scheduled_at=time.isoformat()))
        self.now = to
        return begun


def matches(cron: str, time: datetime) -> bool:
    """Whether six fields of numbers, stars, lists, ranges and steps hold at a time; weekdays from Sunday, 0."""
    fields, sizes = cron.split(), (60, 60, 24, 32, 13, 7)
    if len(fields) != 6:
        raise Refused(400, f"cron {cron}: expected 6 fields, found {len(fields)}")
    now = (time.second, time.minute, time.hour, time.day, time.month, time.isoweekday() % 7)

    def holds(field: str, value: int, size: int) -> bool:
        for part in field.replace("?", "*").split(","):
            span, _, step = part.partition("/")
            first, last = (0, size) if span == "*" else (int(span.split("-")[0]), int(span.split("-")[-1]))
            if first <= value <= last and (value - first) % int(step or 1) == 0:
                return True
        return False

    return all(holds(*each) for each in zip(fields, now, sizes, strict=True))


@pytest.fixture(scope="session")
def operations() -> list[Operation]:
    return description()


@pytest.fixture
def server(operations: list[Operation]) -> Iterator[tuple[str, Server]]:
    """Its address, and the server."""
    state = Server(operations)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, answered = 200, state.answer(self.command, self.path, self.headers, body)
            except Refused as refused:
                status, answered = refused.status, {"error": str(refused), "code": 3, "message": str(refused), "details": []}
            text = answered if isinstance(answered, str) else json.dumps(answered)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answered, str) else "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_DELETE = do_PATCH = handle_any

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", state
    http.shutdown()
    http.server_close()
