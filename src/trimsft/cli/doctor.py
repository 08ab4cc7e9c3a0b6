"""`trimsft doctor`."""

import json
import textwrap
from dataclasses import asdict
from typing import Any

import typer

from trimsft.cli.base import JsonFlag, make_console, make_table
from trimsft.cli.ending import ending
from trimsft.cli.progress import status_line
from trimsft.errors import FAILED


def doctor(as_json: JsonFlag = False) -> None:
    """Check this machine, and say what to do about problems.

    Looks for what the commands need: packages and their versions, vLLM, flash attention, a GPU, room on the disk, the
    hub. Checks every backend of the head against float64, and says which one is taken here.

    Exits with 1 if something will make commands fail.

    \b
    Example:
      trimsft doctor
    """
    from trimsft.doctor.backends import examine
    from trimsft.doctor.needs import examine_needs

    with ending({}), status_line() as status:
        status("checking the backends")
        facts = examine()
        status("looking for what the commands need")
        facts["needs"] = [asdict(need) for need in examine_needs()]
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show_doctor(facts)
    if any(one["verdict"] in ("failed", "wrong") for one in (*facts["checks"], *facts["needs"])):
        raise typer.Exit(FAILED)


def _show_doctor(facts: dict[str, Any]) -> None:
    for key in ("python", "trimsft", "torch", "triton"):
        typer.echo(f"{key:16} {facts[key] or 'not installed'}")
    for need in facts["needs"]:
        mark = "" if need["verdict"] == "ok" else f" ({need['verdict']})"
        typer.echo(f"{need['name']:16} {need['here']}{mark}")
        if need["remedy"]:
            typer.echo(textwrap.fill(need["remedy"], 80, initial_indent=" " * 19, subsequent_indent=" " * 19))
    typer.echo("{:16} 'auto' is {backend}: {because}".format("backend", **facts["auto"]))
    table = make_table("backend", "dtype", "error", "tolerance", "verdict")
    for check in facts["checks"]:
        error = f"{check['error']:.1e}" if "error" in check else ""
        table.add_row(check["backend"], check["dtype"], error, f"{check['tolerance']:.1e}", check["verdict"])
    make_console().print(table)
    reasons = {check["backend"]: check["reason"] for check in facts["checks"] if "reason" in check}
    for backend, reason in reasons.items():
        typer.echo(f"{backend}: {reason}")
