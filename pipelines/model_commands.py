"""ctrflow models: look into a model store, go back to an older version, take a model out, mirror it in the Model Registry."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from components.errors import InvalidConfig, NotPromotable
from pipelines.model_options import name_option

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def models() -> None:
    """Look into a model store (a folder or s3://bucket/folder), roll back, export, mirror."""


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="print a document for programs")(command)


def version_option(command: Command) -> Command:
    return click.option("--version", type=click.IntRange(min=1), help="default: the one in force")(command)


@models.command(name="list")
@click.argument("store")
@click.option("--name", help="of this model only; default: of all")
@json_option
def list_versions(store: str, name: str | None, as_json: bool) -> None:
    """Print all versions in STORE, and which are in force."""
    from components.champion import read_champion
    from components.promote.model_store import model_names, read_versions

    rows = []
    for each in [name] if name else model_names(store):
        champion = read_champion(store, each)
        in_force = champion.version if champion else None
        rows += [{**asdict(version), "in_force": version.version == in_force} for version in read_versions(store, each)]
    if as_json:
        click.echo(json.dumps({"store": store, "versions": rows}, indent=2))
        return
    if not rows:
        raise NotPromotable(f"{store}: no versions{f' of {name}' if name else ''} there; promote a model, or name another store")
    for row in rows:
        state = "in force" if row["in_force"] else ""
        click.echo(
            f"{row['name']} {row['version']:>4}  AUC {row['auc']:.4f}  {row['bytes'] / 1e6:>9,.1f} MB  {row['created_at']}  "
            f"{row['created_by']}  {row['model_digest'][:12]}  {state}".rstrip()
        )


@models.command()
@click.argument("store")
@name_option
@version_option
@json_option
def show(store: str, name: str, version: int | None, as_json: bool) -> None:
    """Print where a version comes from, what the gate said of it, and when it was in force."""
    from components.champion import read_champion
    from components.promote.model_store import read_version
    from components.storage import open_storage

    champion = read_champion(store, name)
    found = read_version(open_storage(store), name, version or _in_force(store, name))
    changes = [asdict(change) for change in (champion.history if champion else ()) if change.version == found.version]
    document = {**asdict(found), "in_force": bool(champion and champion.version == found.version), "changes": changes}
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for key, value in document.items():
        if key not in ("rules", "changes", "lineage"):
            click.echo(f"{key:<18}{value}")
    for key, value in document["lineage"].items():
        click.echo(f"{key:<18}{json.dumps(value) if isinstance(value, dict) else value}")
    for rule in document["rules"]:
        click.echo(f"  {'passed' if rule['passed'] else 'failed'}  {rule['rule']}: {rule['sentence']}")
    for change in changes:
        click.echo(f"  {change['at']}  {change['action']} by {change['by']}: {change['reason']}")


@models.command()
@click.argument("store")
@click.argument("one", type=click.IntRange(min=1))
@click.argument("other", type=click.IntRange(min=1))
@name_option
@json_option
def diff(store: str, one: int, other: int, name: str, as_json: bool) -> None:
    """Print what versions ONE and OTHER differ in: figures, data, plan, code, job, image."""
    from components.promote.model_store import differences, read_version
    from components.storage import open_storage

    storage = open_storage(store)
    found = differences(read_version(storage, name, one), read_version(storage, name, other))
    if as_json:
        click.echo(json.dumps({place: {str(one): mine, str(other): theirs} for place, mine, theirs in found}, indent=2))
        return
    for place, mine, theirs in found:
        click.echo(f"{place}: {json.dumps(mine)} -> {json.dumps(theirs)}")


@models.command()
@click.argument("store")
@click.option("--to", type=click.IntRange(min=1), required=True, help="the version to put in force")
@click.option("--reason", default="by hand", help="kept in the history")
@name_option
@json_option
def rollback(store: str, to: int, reason: str, name: str, as_json: bool) -> None:
    """Put a version of STORE in force again, also where champion.json was damaged or lost. Its files are checked first."""
    from components.promote.model_store import roll_back

    champion = roll_back(store, name, to, reason)
    click.echo(json.dumps(asdict(champion), indent=2) if as_json else f"version {to} of {name} is in force")


@models.command()
@click.argument("store")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@name_option
@version_option
@json_option
def export(store: str, out: Path, name: str, version: int | None, as_json: bool) -> None:
    """Copy the model folder of a version to OUT, every file checked; what broke off goes on where it was."""
    from components.promote.model_store import export_model

    number = version or _in_force(store, name)
    export_model(store, name, number, out)
    document = {"store": store, "name": name, "version": number, "model": str(out)}
    click.echo(json.dumps(document, indent=2) if as_json else f"{out}: version {number} of {name}")


@models.command()
@click.argument("store")
@click.option("--group", required=True, help="model package group of SageMaker's registry; made if there is none")
@click.option("--approved", is_flag=True, help="arrives approved instead of pending")
@name_option
@version_option
@json_option
def mirror(store: str, group: str, approved: bool, name: str, version: int | None, as_json: bool) -> None:
    """Make sure that SageMaker's Model Registry has a version; done twice, the second time changes nothing."""
    from components.promote.model_store import read_version
    from components.promote.registry import mirror as mirror_version
    from components.storage import open_storage

    storage = open_storage(store)
    found = read_version(storage, name, version or _in_force(store, name))
    result = mirror_version(storage.uri, found, group, "Approved" if approved else "PendingManualApproval")
    if result.problem:
        raise InvalidConfig(f"{group}: {result.problem}; the store is as it was, try again")
    click.echo(json.dumps(asdict(result), indent=2) if as_json else f"{result.arn}: version {found.version} of {name}")


def _in_force(store: str, name: str) -> int:
    from components.champion import read_champion

    champion = read_champion(store, name)
    if champion is None:
        raise NotPromotable(f"{store}: no version of {name} is in force; give --version")
    return champion.version
