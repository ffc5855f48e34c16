"""ctrflow schedule: create, list, show, pause, resume, delete, run-now on a cluster or, with --local, on this machine; serve."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from components.plain_names import check_plain
from pipelines.cluster_options import cluster_options, connect
from pipelines.commands import Answer, Group, wants_json
from pipelines.recipe_options import FILE, RECIPE, recipe_options

if TYPE_CHECKING:
    from pipelines.local.schedule_store import LocalSchedule, ScheduleStore
    from pipelines.recipe import Recipe
    from pipelines.schedules import Compared

Command = TypeVar("Command", bound=Callable[..., Any])


def place_options(command: Command) -> Command:
    """On a cluster, or on this machine."""
    store = click.option("--store", type=FILE, default=Path("runs/schedules.db"), help="--local: the file of schedules")
    local = click.option("--local", is_flag=True, help="on this machine, by ctrflow schedule serve")
    return local(store(cluster_options(command)))


def local_store(path: Path) -> "ScheduleStore":
    from pipelines.local.schedule_store import ScheduleStore

    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    return ScheduleStore(path)


@click.group(cls=Group)
def schedule() -> None:
    """Retrain again and again: on Kubeflow Pipelines, or with --local on this machine."""


@schedule.command()
@recipe_options
@click.option(
    "--cron", required=True, help="second minute hour day month weekday, or five fields; '0 0 3 * * *' is 03:00 UTC every day"
)
@click.option("--name", default="", help="of the schedule; default: the recipe's. One that has the name is replaced")
@place_options
def create(
    recipe: Path | None, overrides: tuple[str, ...], cron: str, name: str, local: bool, store: Path, **access: Any
) -> Answer:
    """Make a schedule, in the place of one of the same name."""
    from pipelines.cron import parse_cron
    from pipelines.recipe import read_recipe

    path, now, when = recipe or RECIPE, datetime.now(UTC), parse_cron(cron)
    chosen = read_recipe(path, overrides)
    named = name or chosen.name
    check_plain("schedule", named)
    click.echo(f"cron {when.sentence(now)}", err=wants_json())
    if local:
        made = local_store(store).put(named, when, chosen, path.absolute(), folder=Path.cwd(), now=now)
        text = f"schedule {made.name}: kept in {store}; it fires while ctrflow schedule serve runs"
        return Answer(text=text, document=local_document(made))
    from pipelines import schedules, submission

    cluster, package = submission.send(chosen, str(path), lambda: connect(access, chosen))
    found, replaced = schedules.create(chosen, named, when, cluster, package)
    was = f", replaced {replaced}" if replaced else ""
    return Answer(
        text=f"schedule {found.name}: {found.id}{was}, pipeline version {package.version}",
        document={**found.document(), "replaced": replaced, "version": package.version, "uploaded": package.uploaded},
    )


@schedule.command("list")
@place_options
def list_schedules(local: bool, store: Path, **access: Any) -> Answer:
    """Schedules, and when each fires next."""
    if local:
        found = [local_document(each) for each in local_store(store).all()]
    else:
        from pipelines.schedules import schedule_of

        found = [schedule_of(each).document() for each in connect(access).schedules()]
    lines = [f"{each['name']:<24}{each['state']:<9}{', '.join(each['next'][:1]):<27}{each['words']}" for each in found]
    return Answer(text="\n".join(lines) or "no schedules", document=found)


@schedule.command()
@click.argument("name")
@recipe_options
@place_options
def show(name: str, recipe: Path | None, overrides: tuple[str, ...], local: bool, store: Path, **access: Any) -> Answer:
    """A schedule, and whether it runs what is in the checkout: the recipe and the installed code."""
    from pipelines import schedules

    firings: list[dict[str, Any]] = []
    if local:
        kept = local_store(store)
        found = kept.get(name)
        document = local_document(found)
        compared = local_compared(found, checkout_recipe(recipe or Path(found.task.recipe_path), overrides))
        firings = [
            {"run_id": each.run_id, "time": each.time, "attempts": each.attempts, "outcome": each.outcome}
            for each in kept.firings(name)[-10:]
        ]
    else:
        on_cluster = schedules.schedule_of(schedules.find(connect(access), name))
        document = on_cluster.document()
        compared = schedules.compare(on_cluster, checkout_recipe(recipe or RECIPE, overrides))
    lines = [f"{key:<17}{', '.join(value) if isinstance(value, list) else value}" for key, value in document.items() if value]
    lines += [compared.sentence, *(f"  {each['run_id']}  {each['outcome'] or 'open'}" for each in firings)]
    same = {"recipe_is_same": compared.recipe_is_same, "pipeline_is_same": compared.pipeline_is_same}
    return Answer(text="\n".join(lines), document={**document, **same, "firings": firings})


def checkout_recipe(path: Path, overrides: tuple[str, ...]) -> "Recipe | None":
    """The recipe to compare with, if it is there."""
    from pipelines.recipe import read_recipe

    return read_recipe(path, overrides) if path.is_file() else None


def local_compared(found: "LocalSchedule", recipe: "Recipe | None") -> "Compared":
    """On this machine the installed code runs, whatever it is."""
    from pipelines.schedules import Compared

    return Compared(recipe_is_same=recipe.digest() == found.task.recipe_digest if recipe else None, pipeline_is_same=None)


def local_document(found: "LocalSchedule") -> dict[str, Any]:
    """A schedule of this machine, in the words of those of a cluster."""
    following = found.cron.next_times(datetime.now(UTC)) if found.next else []
    if found.next and found.next <= datetime.now(UTC):
        following = [found.next.isoformat(), *following[:-1]]
    return {
        "name": found.name,
        "cron": found.cron.fields,
        "words": found.cron.words,
        "state": "enabled" if found.next else "paused",
        "next": following,
        "max_concurrency": 1,
        "recipe": found.task.recipe_path,
        "recipe_digest": found.task.recipe_digest,
        "folder": found.task.folder,
    }


@schedule.command()
@click.argument("name")
@place_options
def pause(name: str, local: bool, store: Path, **access: Any) -> Answer:
    """Let a schedule fire no more, until it is resumed."""
    if local:
        local_store(store).pause(name)
    else:
        cluster, found = of_cluster(access, name)
        cluster.disable(found.recurring_run_id)
    return Answer(text=f"schedule {name}: paused", document={"name": name, "state": "paused"})


@schedule.command()
@click.argument("name")
@place_options
def resume(name: str, local: bool, store: Path, **access: Any) -> Answer:
    """Let a paused schedule fire again, from its next time on."""
    if local:
        local_store(store).resume(name)
    else:
        cluster, found = of_cluster(access, name)
        cluster.enable(found.recurring_run_id)
    return Answer(text=f"schedule {name}: enabled", document={"name": name, "state": "enabled"})


@schedule.command()
@click.argument("name")
@place_options
def delete(name: str, local: bool, store: Path, **access: Any) -> Answer:
    """Remove a schedule; runs that it began stay."""
    if local:
        local_store(store).delete(name)
    else:
        cluster, found = of_cluster(access, name)
        cluster.delete(found.recurring_run_id)
    return Answer(text=f"schedule {name}: deleted", document={"name": name, "deleted": True})


@schedule.command("run-now")
@click.argument("name")
@place_options
def run_now(name: str, local: bool, store: Path, **access: Any) -> Answer:
    """Run what a schedule runs once, beside its times."""
    if local:
        kept = local_store(store)
        found = kept.get(name)
        run_id = kept.fire(name, datetime.now(UTC), found.task)
        return Answer(text=f"run {run_id}: begins as soon as ctrflow schedule serve runs", document={"run_id": run_id})
    from pipelines import schedules
    from pipelines.run_documents import run_document

    cluster, on_cluster = of_cluster(access, name)
    run = schedules.run_now(cluster, on_cluster)
    return Answer(text=f"run {run.run_id}: {run.display_name}", document=run_document(run))


def of_cluster(access: dict[str, str], name: str) -> Any:
    from pipelines.schedules import find

    cluster = connect(access)
    return cluster, find(cluster, name)


@schedule.command()
@click.option("--store", type=FILE, default=Path("runs/schedules.db"), help="the file of schedules")
@click.option("--until-idle", is_flag=True, help="end when nothing is due")
@click.option("--print", "printed", type=click.Choice(["systemd", "cron"]), help="what starts it at boot, instead of serving")
def serve(store: Path, until_idle: bool, printed: str | None) -> Answer | None:
    """Fire this machine's schedules in the foreground; Ctrl-C ends it, and a run under way begins anew at the next start."""
    from pipelines.local import serving

    if printed:
        texts = {"systemd": serving.systemd_unit, "cron": serving.cron_line}
        text = texts[printed](store.absolute(), Path.cwd()).rstrip()
        return Answer(text=text, document={printed: text})
    kept = local_store(store)
    every = kept.all()
    for each in every:
        click.echo(f"schedule {each.name}: {each.cron.sentence(datetime.now(UTC)) if each.next else 'paused'}", err=wants_json())
    serving.serve(kept, lambda line: click.echo(line, err=wants_json()), until_idle=until_idle)
    return Answer(text="nothing is due", document={"schedules": len(every), "due": 0})
