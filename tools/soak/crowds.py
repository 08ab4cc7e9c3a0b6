"""Two of the same command in one folder: one waits, is refused or helps, and the result is the one of a single one."""

from functools import partial

from tools.soak.campaign import Kind, Lost, Trial, require_same, require_told
from tools.soak.results import result_of


def meet(trial: Trial, *, command: str) -> None:
    words, reference = trial.bench.words(command), trial.bench.reference(command)
    first = trial.bench.children.fork(words, trial.folder, "first")
    seconds = trial.rng.choice((0.0, trial.rng.uniform(0, reference.seconds)))
    first.is_running(seconds)
    second = trial.bench.children.fork(words, trial.folder, "second")
    what = f"two of {command}, the second after {seconds:.2f} s"
    trial.note(what)
    ended = [child.wait(300) for child in (first, second)]
    for one in ended:
        require_told(one, what)
    if all(one.code for one in ended):
        raise Lost(f"{what}: both gave up: {ended[0].last_line[:200]!r}, {ended[1].last_line[:200]!r}")
    require_same(result_of(trial.folder / "out"), reference.result, what)


KINDS = [
    Kind("two-trainings", partial(meet, command="train"), weight=0.7),
    Kind("two-evaluations", partial(meet, command="eval"), weight=0.7),
    Kind("two-token-tables", partial(meet, command="tokens"), weight=0.5),
    Kind("two-studies", partial(meet, command="study"), weight=1, how="forks, workers are processes"),
]
