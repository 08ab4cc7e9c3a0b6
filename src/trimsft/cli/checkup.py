"""`trimsft doctor`."""

from __future__ import annotations

import json
from typing import Any

import typer

from trimsft.cli.base import JsonFlag, choose_device, make_console, make_table, status_line


def doctor(as_json: JsonFlag = False) -> None:
    """Say what works here.

    What is installed, which backend the head takes here; checks every backend against float64.

    Exits with 1 if a backend that should work is wrong or breaks.

    \b
    Example:
      trimsft doctor
    """
    from trimsft.doctor import examine

    with status_line() as status:
        status("checking the backends")
        facts = examine(choose_device("auto"))
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show_doctor(facts)
    if any(check["verdict"] == "failed" for check in facts["checks"]):
        raise typer.Exit(1)


def _show_doctor(facts: dict[str, Any]) -> None:
    cuda = facts["cuda"] and "{device}, {free_gib} of {total_gib} GiB free".format(**facts["cuda"])
    lines = {key: facts[key] for key in ("python", "trimsft", "torch")}
    lines |= {"triton": facts["triton"] or "not installed", "cuda": cuda or "no device"}
    lines["backend"] = "'auto' is {backend}: {because}".format(**facts["auto"])
    for key, value in lines.items():
        typer.echo(f"{key:8} {value}")
    table = make_table("backend", "dtype", "error", "tolerance", "verdict")
    for check in facts["checks"]:
        error = f"{check['error']:.1e}" if "error" in check else ""
        table.add_row(check["backend"], check["dtype"], error, f"{check['tolerance']:.1e}", check["verdict"])
    make_console().print(table)
    reasons = {check["backend"]: check["reason"] for check in facts["checks"] if "reason" in check}
    for backend, reason in reasons.items():
        typer.echo(f"{backend}: {reason}")
