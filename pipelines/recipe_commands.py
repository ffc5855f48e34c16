"""ctrflow init and compile: a recipe to begin with, and what a recipe is to a cluster."""

import shutil
from pathlib import Path

import click

from components.errors import InvalidConfig
from pipelines.commands import Answer, Command
from pipelines.recipe_options import FILE, RECIPE, recipe_options

SHIPPED = Path(__file__).with_name(RECIPE.name)


@click.command(cls=Command)
@click.argument("out", type=FILE, default=RECIPE)
def init(out: Path) -> Answer:
    """Write a recipe with comments to OUT: every setting with its default."""
    if out.exists():
        raise InvalidConfig(f"{out}: exists; name another file, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SHIPPED, out)
    return Answer(text=f"{out}: edit it, then ctrflow run --recipe {out}", document={"recipe": str(out)})


@click.command(cls=Command)
@click.argument("out", type=FILE)
@recipe_options
@click.option("--kubernetes", is_flag=True, help="as Pipeline and PipelineVersion objects of Kubernetes, to kubectl apply")
@click.option("--namespace", default="", help="of those objects")
def compile(out: Path, recipe: Path | None, overrides: tuple[str, ...], kubernetes: bool, namespace: str) -> Answer:
    """Compile the pipeline to OUT, KFP's YAML; a recipe's settings become the defaults of its parameters."""
    from pipelines.compiled import compile_retrain, write_manifests
    from pipelines.recipe import read_recipe

    if overrides and not recipe:
        raise InvalidConfig(f"--set {overrides[0]}: changes a recipe; name it with --recipe")
    if namespace and not kubernetes:
        raise InvalidConfig(f"--namespace {namespace}: of Kubernetes' objects; add --kubernetes")
    chosen = read_recipe(recipe, overrides) if recipe else None
    digest = write_manifests(out, chosen, namespace) if kubernetes else compile_retrain(out, chosen)
    return Answer(text=f"{out}", document={"pipeline": str(out), "digest": digest})
