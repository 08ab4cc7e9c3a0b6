"""SIGKILL at random moments: the same command, once more, ends with what an undisturbed one makes."""

import signal
from functools import partial

from tools.soak.bench import watch
from tools.soak.campaign import Kind, Trial, require_done, require_gone, require_same
from tools.soak.children import Child
from tools.soak.results import result_of

LONG = 600.0


def kill_and_continue(trial: Trial, command: str, *, real: bool = False) -> None:
    """Kill it once or several times, then let it end, and compare."""
    words, reference = trial.bench.words(command), trial.bench.reference(command)
    for _ in range(trial.rng.choice((1, 1, 2, 3))):
        child = trial.start(words, real=real)
        moment = wait_for_moment(trial, child, command)
        whom = trial.rng.choice(("it", "its group"))
        child.send(signal.SIGKILL, to_group=whom == "its group")
        ended = child.wait(10)
        trial.note(f"killed {whom} {moment}" if ended.code == -signal.SIGKILL else f"over before {moment}")
        require_gone(trial, f"{command}, killed {moment}")
    require_done(trial.run(words, real=real, timeout=LONG), f"{command} once more")
    require_same(result_of(trial.folder / "out"), reference.result, f"{command}, killed")


def wait_for_moment(trial: Trial, child: Child, command: str, *, since: float = 0.0) -> str:
    """Wait until a random time, or for one of the changes in its folder; says which."""
    reference = trial.bench.reference(command)
    if trial.rng.random() < 0.5:
        seconds = since + trial.rng.uniform(0, reference.seconds)
        child.is_running(seconds)
        return f"after {seconds:.2f} s"
    wanted = trial.rng.randint(1, max(1, reference.changes))
    for count in watch(trial.folder / "out", lambda: child.is_running(0.001)):
        if count == wanted:
            break
    return f"at change {wanted} of its folder"


KINDS = [
    Kind("kill-train", partial(kill_and_continue, command="train"), weight=3),
    Kind("kill-eval", partial(kill_and_continue, command="eval"), weight=2),
    Kind("kill-tokens", partial(kill_and_continue, command="tokens"), weight=1),
    Kind(
        "kill-study",
        partial(kill_and_continue, command="study"),
        weight=2,
        how="forks, workers are processes",
        expected=60,
    ),
    Kind(
        "kill-quickstart",
        partial(kill_and_continue, command="quickstart", real=True),
        weight=2,
        how="processes",
        expected=240,
    ),
]
