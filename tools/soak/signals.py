"""SIGINT, SIGTERM and SIGHUP at random moments: one line, the right exit code, nothing left running; it continues."""

import signal
from functools import partial
from pathlib import Path

from tools.soak.bench import wait_until
from tools.soak.campaign import Kind, Lost, Trial, require_done, require_gone, require_same
from tools.soak.children import HUNG, Child, Ended
from tools.soak.kills import LONG, wait_for_moment
from tools.soak.results import result_of

CODES = {signal.SIGINT: (130,), signal.SIGTERM: (143,), signal.SIGHUP: (129, -signal.SIGHUP)}
"""Who closes a terminal reads no line, so that SIGHUP may also end a command as it always does."""
PATIENCE = 30.0
"""Seconds in which a command has to end once it is asked to."""


def ask_to_end(trial: Trial, command: str, *, real: bool = False, early: bool = False) -> None:
    words, reference = trial.bench.words(command), trial.bench.reference(command)
    number = list(CODES)[trial.number % len(CODES)]
    child = trial.start(words, real=real)
    # before that Python itself is starting, and does as the system does
    wait_until(lambda: heeds(child, signal.SIGTERM) or not child.is_running(), 60)
    moment = _early(trial, child) if early else wait_for_moment(trial, child, command)
    to_group = trial.rng.random() < 0.5  # as a terminal does
    was_running = child.is_running()
    child.send(number, to_group=to_group)
    ended = child.wait(PATIENCE)
    what = f"{command}, {number.name} {moment}" + (" to its group" if to_group else "")
    trial.note(what if was_running else f"over before {what}")
    if ended.code == -number:  # Python was on its way out, with everything done
        require_same(result_of(trial.folder / "out"), reference.result, f"{what}: ended without a word")
    else:
        require_ended(ended, number, what)
    require_gone(trial, what)
    require_done(trial.run(words, real=real, timeout=LONG), f"{command} once more")
    require_same(result_of(trial.folder / "out"), reference.result, what)


def require_ended(ended: Ended, number: signal.Signals, what: str) -> None:
    if ended.code == HUNG:
        raise Lost(f"{what}: still running after {PATIENCE:.0f} s")
    if "Traceback (most recent call last)" in ended.err + ended.out:
        raise Lost(f"{what}: a traceback: {ended.last_line[:300]}")
    if ended.code not in (0, *CODES[number]):
        raise Lost(f"{what}: exit code {ended.code}: {ended.last_line[:300]}")
    if ended.code > 0 and not ended.last_line.startswith("trimsft: "):
        raise Lost(f"{what}: exit code {ended.code} without a word: {ended.last_line[:300]!r}")


def _early(trial: Trial, child: Child) -> str:
    """While a real process imports what it needs."""
    seconds = trial.rng.uniform(0, 6)
    child.is_running(seconds)
    return f"{seconds:.2f} s after it heeds signals"


def heeds(child: Child, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{child.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


KINDS = [
    Kind("signal-train", partial(ask_to_end, command="train"), weight=2),
    Kind("signal-eval", partial(ask_to_end, command="eval"), weight=1.5),
    Kind("signal-tokens", partial(ask_to_end, command="tokens"), weight=0.7),
    Kind(
        "signal-study",
        partial(ask_to_end, command="study"),
        weight=1.5,
        how="forks, workers are processes",
        expected=60,
    ),
    Kind("signal-start", partial(ask_to_end, command="train", real=True, early=True), weight=1, how="processes"),
    Kind("signal-quickstart", partial(ask_to_end, command="quickstart", real=True), how="processes", expected=240),
]
