"""How far predictions of step times are off: fitted to one setting with 1 and 2 workers, held against others that were measured.

    python tests/benchmarks/prediction.py [--seconds 3]

Fitted to: batch 1024 and embedding size 16, by one process with all threads and with one, and by Horovod with 2 workers. Held
out: other batch sizes, other embedding sizes, other deep layers, of one process and of 2 workers. Aim: a median error under 15 %.
"""

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from planted import Planted, write_dataset

from components.manifest import read_manifest
from components.plan import ModelSettings, Strategy, Threads, direct_plan
from components.probes import run_probes
from components.profile import Probe
from components.select_strategy.elsewhere import points, scalings
from components.select_strategy.machines import unpriced_host
from components.select_strategy.scaling import Setup, predict
from components.select_strategy.work import work_of
from pipelines.local_jobs import local_jobs

IDS, ROWS = 117_581, 262_144
FITTED = ModelSettings(embedding_size=16, batch_size=1024)
HELD_OUT = (
    replace(FITTED, batch_size=512),
    replace(FITTED, batch_size=2048),
    replace(FITTED, batch_size=4096),
    replace(FITTED, embedding_size=8),
    replace(FITTED, embedding_size=32),
    replace(FITTED, embedding_size=64, batch_size=2048),
    replace(FITTED, deep_layers=(512, 256)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="that each job measures")
    arguments = parser.parse_args()
    world = Planted(IDS)
    with tempfile.TemporaryDirectory(prefix="ctrflow-prediction-") as folder, local_jobs() as jobs:
        dataset = write_dataset(Path(folder) / "data", world.rows(ROWS, 1), world.rows(4096, 2), IDS, shards=4)
        manifest, count = read_manifest(dataset), iter(range(1000))

        def measure(strategy: Strategy, settings: ModelSettings, threads: Threads | None = None) -> Probe:
            plan = direct_plan(strategy, settings, threads=threads)
            (probe,) = run_probes(plan, dataset, jobs, task=f"point-{next(count)}", wish="both", seconds=arguments.seconds)
            print(f"{plan.summary()}, embedding {settings.embedding_size}: {probe.rate()}", file=sys.stderr, flush=True)
            return probe

        one = Threads(intra_op=1, inter_op=1, omp=1, kmp_affinity="disabled")
        alone = measure("single", FITTED)
        here = unpriced_host("local", alone.usable_cpus, alone.machine.physical_cores if alone.machine else None, 16e9)
        known = points((alone, measure("single", FITTED, one), measure("horovod", FITTED, one)), here)
        fits = scalings(known, work_of(FITTED, manifest))
        errors = []
        print("| held out | predicted examples/s | 95 % bounds | measured | error |")
        print("|" + "---|" * 5)
        for settings in HELD_OUT:
            for strategy, workers in (("single", 1), ("horovod", 2)):
                probe = measure(strategy, settings, None if workers == 1 else one)
                work = work_of(settings, manifest)
                here_fits = {name: replace(each, work=work) for name, each in fits.items()}
                setup = Setup(
                    strategy=strategy,
                    workers_per_host=workers,
                    batch_size=settings.batch_size // workers,
                    cores=here.cores / workers,
                )
                found = predict(here_fits, setup)
                errors.append(abs(found.examples_per_s / probe.examples_per_s - 1))
                what = f"{strategy}, batch {settings.batch_size}, embedding {settings.embedding_size}, {settings.deep_layers}"
                bounds = f"{found.low:,.0f} to {found.high:,.0f}"
                print(
                    f"| {what} | {found.examples_per_s:,.0f} | {bounds} | {probe.examples_per_s:,.0f} | {errors[-1]:.1%} |",
                    flush=True,
                )
        print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")


if __name__ == "__main__":
    main()
