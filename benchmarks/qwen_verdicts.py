"""What the evaluation code of Qwen2.5-Math says about pairs of a gold and a response; run by benchmarks/grading.py.

    python benchmarks/qwen_verdicts.py Qwen2.5-Math/evaluation < pairs.jsonl > verdicts.jsonl

The Python that runs this needs that code's own requirements (sympy==1.12, antlr4-python3-runtime==4.11.1, regex,
word2number), and nothing of trimsft. A pair is {"gold": "...", "text": "...", "minerva": false}; its verdict
{"equal": true, "answer": "..."}, where equal is null past six seconds.
"""

from __future__ import annotations

import json
import signal
import sys
import types
from multiprocessing import Pool
from typing import Any

_SECONDS = 6


def main(folder: str) -> None:
    with Pool(initializer=_prepare, initargs=(folder,), maxtasksperchild=2000) as pool:
        for verdict in pool.imap(_verdict, sys.stdin, chunksize=20):
            print(verdict, flush=True)


def _prepare(folder: str) -> None:
    sys.path[:0] = [folder, f"{folder}/latex2sympy"]
    sys.modules["utils"] = types.ModuleType("utils")  # theirs loads datasets; the parser uses nothing of it
    signal.signal(signal.SIGALRM, _late)


def _late(*_: Any) -> None:
    raise TimeoutError


def _verdict(line: str) -> str:
    from grader import math_equal
    from parser import extract_answer, strip_string

    pair = json.loads(line)
    equal, answer = None, None
    signal.alarm(_SECONDS)
    try:
        if pair["minerva"]:  # their set of this name keeps units, and its golds are hardly touched
            answer = strip_string(extract_answer(pair["text"], "minerva_math"), skip_unit=True)
            gold = pair["gold"].replace("\\neq", "\\ne").replace("\\leq", "\\le").replace("\\geq", "\\ge")
        else:
            answer, gold = strip_string(extract_answer(pair["text"], "math")), strip_string(pair["gold"])
        equal = bool(math_equal(answer, gold))
    except TimeoutError:
        pass
    finally:
        signal.alarm(0)
    return json.dumps({"equal": equal, "answer": answer})


if __name__ == "__main__":
    main(sys.argv[1])
