"""The worker of the pool without math-verify: started at once, equal where texts are, and hanging on demand."""

import sys
import time

from trimsft.grading import worker


def judge(gold: str, answer: str, loose: bool) -> str:
    if answer == "hang":
        time.sleep(600)
    return "equal" if gold == answer else "different"


if __name__ == "__main__":
    worker.judge = judge
    worker.main(int(sys.argv[1]))
