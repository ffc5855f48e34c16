"""The checks of an AWS request that botocore leaves to the service: patterns, enums, lengths and ranges.

botocore itself checks names, types and what is required. Both are read from the service model that botocore ships, so that
the operator refuses a bad request before it leaves, and the local endpoint refuses what the real service would.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from components.errors import InvalidConfig

Service = Literal["sagemaker", "logs"]

# Members that hold an s3:// URI in the service model, and may hold file:///... at the local endpoint.
_URI_MEMBERS = ("S3Uri", "S3OutputPath")
# Unicode classes that Python's re lacks. Wider by a few characters, never narrower.
_UNICODE_CLASSES = ((r"\p{L}", r"\w"), (r"\p{N}", r"\w"), (r"\p{Z}", r"\s"), (r"\p{Alnum}", "a-zA-Z0-9"))


@cache
def service_model(service: Service) -> ServiceModel:
    """The service model in botocore's own data files; nothing is fetched."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def check_request(operation: str, request: Mapping[str, Any], *, file_uris: bool, service: Service = "sagemaker") -> None:
    """Refuse a request that the service would refuse for its form.

    Args:
        operation: its name in the service model, such as CreateTrainingJob.
        file_uris: file:///... is accepted where an S3 URI is expected, as the local endpoint does.
    Raises:
        InvalidConfig: one line naming the operation and every wrong member with its path.
    """
    shape = service_model(service).operation_model(operation).input_shape
    if shape is None:
        return
    report = ParamValidator().validate(dict(request), shape)
    # Values are walked only once their types are right.
    problems = report.generate_report().splitlines() if report.has_errors() else list(_problems(request, shape, "", file_uris))
    if problems:
        raise InvalidConfig(f"{operation}: {'; '.join(problems)}")


def _problems(value: Any, shape: Any, path: str, file_uris: bool) -> Iterator[str]:
    """What is wrong with a value of the right type, and with everything inside it."""
    if shape.type_name == "structure":
        for name, member in value.items():
            yield from _problems(member, shape.members[name], f"{path}.{name}".lstrip("."), file_uris)
    elif shape.type_name == "list":
        yield from _range_problems(len(value), shape, f"{path}: {len(value)} items")
        for index, item in enumerate(value):
            yield from _problems(item, shape.member, f"{path}[{index}]", file_uris)
    elif shape.type_name == "map":
        yield from _range_problems(len(value), shape, f"{path}: {len(value)} entries")
        for key, item in value.items():
            yield from _problems(key, shape.key, f"{path} (the key {key!r})", file_uris)
            yield from _problems(item, shape.value, f"{path}.{key}", file_uris)
    elif shape.type_name == "string":
        yield from _text_problems(value, shape, path, file_uris)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _range_problems(value, shape, f"{path}: {value}")


def _range_problems(size: float, shape: Any, what: str) -> Iterator[str]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and size < low:
        yield f"{what}, at least {low} expected"
    if high is not None and size > high:
        yield f"{what}, at most {high} expected"


def _text_problems(value: str, shape: Any, path: str, file_uris: bool) -> Iterator[str]:
    yield from _range_problems(len(value), shape, f"{path}: {len(value)} characters")
    if shape.enum and value not in shape.enum:
        yield f"{path}: {value!r} is not one that the service knows ({shape.name})"
    if file_uris and path.rpartition(".")[2] in _URI_MEMBERS and value.startswith("file:///"):
        return
    pattern = shape.metadata.get("pattern")
    if pattern is not None and not _compiled(pattern).fullmatch(value):
        yield f"{path}: {value!r} does not match {pattern}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the service model, which is written for Java, as Python's re understands it."""
    for java, python in _UNICODE_CLASSES:
        pattern = pattern.replace(java, python)
    return re.compile(pattern)
