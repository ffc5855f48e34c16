"""ctrflow instances: the catalogue of instance types, and its prices."""

from dataclasses import asdict
from pathlib import Path

import click

from components.instances import Instance, in_families, read_instances, write_overrides
from components.price_list import PRICE_LIST, download_prices, refreshed
from pipelines.commands import Answer, Group

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=Group)
def instances() -> None:
    """Show the catalogue of instance types, or take prices from AWS's public price list."""


@instances.command(name="list")
@click.option("--family", "families", multiple=True, help="such as c7i; may be given several times")
@click.option("--instances", "overrides", type=FILE, help="a file of your own: prices, and types that the catalogue lacks")
def show(families: tuple[str, ...], overrides: Path | None) -> Answer:
    """Print the types that a plan may choose among, with the source and day of each price."""
    chosen = in_families(read_instances(overrides=overrides), families)
    return Answer(text=table(chosen), document=[asdict(instance) for instance in chosen])


@instances.command()
@click.option("--region", default="us-east-1", help="whose prices")
@click.option(
    "--out", type=FILE, default=Path("instances.csv"), help="your file; its prices are replaced, types of your own are kept"
)
@click.option("--price-list", default=PRICE_LIST, help="address of the list; a file that you fetched otherwise is file:///...")
def refresh(region: str, out: Path, price_list: str) -> Answer:
    """Take the prices of training from AWS's public price list into a file of your own. No credentials are needed."""
    catalogue = read_instances()
    known = read_instances(overrides=out if out.exists() else None)
    prices = download_prices(region, price_list)
    new = {instance.name: instance for instance in refreshed(known, prices, region)}
    kept = [instance for instance in known if instance.name not in new and instance not in catalogue]
    write_overrides(out, [*new.values(), *kept], catalogue)
    changed = sum(new[old.name].usd_per_hour != old.usd_per_hour for old in known if old.name in new)
    lines = [f"{out}: prices of {len(new)} types of {prices.published} in {region}, {changed} of them changed"]
    missing = [instance.name for instance in known if instance.name not in new]
    if missing:
        lines.append(f"as before, for the list has no single price of them: {', '.join(missing)}")
    others = len(prices.usd_per_hour.keys() - new.keys())
    lines.append(f"{others} types of the list are not in the catalogue; add rows of your own to {out} for those that you want")
    counts = {"refreshed": len(new), "changed": changed, "missing": missing, "not_in_catalogue": others}
    return Answer(text="\n".join(lines), document={"out": str(out), "region": region, "published": prices.published, **counts})


def table(chosen: tuple[Instance, ...]) -> str:
    """A line a type, columns under each other."""
    rows = [("type", "vCPUs", "cores", "GPUs", "GiB", "Gbit/s", "USD/h", "", "price of", "source")]
    for each in chosen:
        gpus = f"{each.gpus} {each.gpu} {each.gpu_gib:g}" if each.gpus else "-"
        cells = (str(each.vcpus), str(each.physical_cores), gpus, f"{each.memory_gib:g}", f"{each.network_gbit_s:g}")
        rows.append((each.name, *cells, f"{each.usd_per_hour:.4f}", "retired" if each.retired else "", each.date, each.source))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numbers = (1, 2, 4, 5, 6)
    lines = (
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
