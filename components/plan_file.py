"""plan.json as a file."""

from dataclasses import asdict
from pathlib import Path

from components.documents import checked_arguments, read_json
from components.errors import InvalidConfig
from components.plan import FORMAT_VERSION, Plan, Ranked, Rung
from components.storage import write_json_atomic


def write_plan(path: Path, plan: Plan) -> None:
    write_json_atomic(path, {"format_version": FORMAT_VERSION, **asdict(plan)})


def read_plan(path: Path) -> Plan:
    """The plan of a file.

    Raises:
        InvalidConfig: missing, damaged, of another version, or with unknown keys or impossible values.
    """
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such plan; make one with ctrflow select, or give --strategy")
    try:
        document = read_json(path)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not valid JSON ({error}); run ctrflow select again") from error
    if not isinstance(document, dict) or document.pop("format_version", None) != FORMAT_VERSION:
        raise InvalidConfig(f"{path}: format_version {FORMAT_VERSION} is expected; run ctrflow select again")
    arguments = checked_arguments(Plan, document, str(path))
    for name in ("rungs", "ranking"):
        if not isinstance(arguments[name], list):
            raise InvalidConfig(f"{path}: {name} must be a list")
    rungs = tuple(Rung(**checked_arguments(Rung, rung, f"{path}: rungs")) for rung in arguments["rungs"])
    ranking = tuple(Ranked(**checked_arguments(Ranked, one, f"{path}: ranking")) for one in arguments["ranking"])
    try:
        return Plan(**{**arguments, "rungs": rungs, "ranking": ranking})
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
