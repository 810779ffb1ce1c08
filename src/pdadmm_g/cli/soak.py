"""The command that soaks: random kills and resumptions."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import InputError


@click.command()
@click.option("--runs", default=200, show_default=True, metavar="N", help="number of runs")
@click.option("--seed", default=0, show_default=True, metavar="N", help="seed of the first run; the next has the next")
@click.option("--jobs", default=1, show_default=True, metavar="N", help="runs at a time")
@click.option("--out", metavar="FILE", help="write the result to this JSON file after every run, or go on with it")
def soak(runs: int, seed: int, jobs: int, out: str | None) -> int:
    """Kill and resume random runs at random; each must end with the weights of the undisturbed run, bit for bit.

    Checks also that no run hangs, no process is left and no checkpoint is lost. Exit code 1 if anything failed; a
    failed run is repeated with --runs 1 and its seed. Where --out has runs already, only those that are missing or
    failed are carried out: a soak that was cut short goes on.

    \b
    pdadmm-g soak --runs 20
    pdadmm-g soak --runs 200 --jobs 8 --out results/soak.json
    """
    for name, value, least in (("runs", runs, 1), ("jobs", jobs, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"--{name} must be at least {least}, got {value}")

    import json

    from ..files import check_folder, write_atomically
    from ..hardware import provenance
    from ..stress.soak.campaign import read_outcomes, summarize
    from ..stress.soak.campaign import soak as run
    from ..stress.soak.trial import Outcome

    if out is not None:
        check_folder(Path(out))
    about = provenance(f"pdadmm-g soak --runs {runs} --seed {seed} --jobs {jobs}")
    seeds = range(seed, seed + runs)
    outcomes = [one for one in read_outcomes(Path(out)) if one.case.seed in seeds and not one.failure] if out else []

    def show(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if out is not None:
            write_atomically(Path(out), json.dumps(about | summarize(outcomes), indent=1) + "\n")
        faults = ", ".join(f"{kind}{'' if middle else ' early'}" for kind, middle in outcome.caused)
        click.echo(
            f"seed {outcome.case.seed}: {outcome.failure or 'same weights'} ({faults or 'undisturbed'})", err=True
        )

    done = {one.case.seed for one in outcomes}
    run([number for number in seeds if number not in done], jobs, show)
    result = summarize(outcomes)
    click.echo(
        f"{runs} runs, {result['faults']} faults, {result['share_in_mid_training']:.0%} of them in mid "
        f"training; {len(result['failures'])} runs failed"
    )
    return 1 if result["failures"] else 0
