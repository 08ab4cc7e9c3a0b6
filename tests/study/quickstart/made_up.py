"""Scores of runs that never ran: problems of which about so many samples are right."""

from trimsft.scoring.metrics import SampleResult
from trimsft.scoring.scores import BenchmarkScore, score
from trimsft.study.quickstart.scores import Results

TIERS = ("lab-easy", "lab-medium", "lab-hard")
SAMPLES = 8


def make_results(problems: int = 24, **solved: tuple[int, float]) -> Results:
    """Of each run (dashes as underscores): samples of 8 that solve a problem, and the share solved greedy."""
    return Results(
        {
            name.replace("_", "-"): [_tier(tier, problems, right, greedy) for tier in TIERS]
            for name, (right, greedy) in solved.items()
        }
    )


def _tier(tier: str, problems: int, right: int, greedy: float) -> BenchmarkScore:
    results = []
    for number in range(problems):
        # one more or one less by turns: problems differ, and runs on them, but means do not
        more = (number + 2 * right) % 3 - 1 if 0 < right < SAMPLES else 0
        correct = right + more
        results += [_result(tier, number, sample, sample < correct) for sample in range(SAMPLES)]
        results.append(_result(tier, number, -1, number < greedy * problems))
    return score(tier, results, lambda a, b: a == b, resamples=200)


def _result(tier: str, number: int, sample: int, correct: bool) -> SampleResult:
    return SampleResult(
        problem=f"{tier}-{number}",
        sample=sample,
        correct=correct,
        status="correct" if correct else "wrong",
        answer="7" if correct else "8",
        tokens=20,
        truncated=False,
        greedy=sample < 0,
    )
