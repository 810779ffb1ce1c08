"""The command that checks the installation."""

from __future__ import annotations

import dataclasses

import click

from .exit_codes import EXIT_FAILURE
from .output import Output, output_options


@click.command(short_help="Check this installation.")
@output_options
def doctor(output: Output) -> int:
    """Show versions, devices, backends and folders, then train on two workers for a few seconds.

    Each line says ok, missing (it can be done without) or FAILED, and what to do about it. Exit code 0, or 3 if
    something failed.

    \b
    pdadmm-g doctor
    pdadmm-g doctor --json | jq '.checks[] | select(.state == "FAILED")'
    """
    from ..stress.doctor import diagnose

    checks = []
    for check in diagnose():
        checks.append(check)
        output.say(
            f"{check.state:<9}{check.name:<18}{check.detail}{f'; remedy: {check.remedy}' if check.remedy else ''}"
        )
    healthy = all(check.state != "FAILED" for check in checks)
    output.result({"healthy": healthy, "checks": [dataclasses.asdict(check) for check in checks]})
    if not healthy:
        output.error("failed: " + ", ".join(check.name for check in checks if check.state == "FAILED"))
    return 0 if healthy else EXIT_FAILURE
