"""The process that runs math-verify or patterns: started as a script, it imports nothing of this package.

A host process imports math-verify once (for patterns: nothing) and forks a child; the child answers one
JSON line after the other. Past its time the kernel ends the child (a timer whose signal has its default action, so no
Python code has to cooperate), past its memory an allocation fails; the host forks the next child in
milliseconds. Only strings come in, only one word goes out, of a pattern also what it found:

    {"gold": "\\frac{1}{2}", "answer": "0.5", "seconds": 1.5, "loose": false}  ->  {"said": "equal"}
    {"pattern": "#### (\\d+)", "text": "... #### 18", "seconds": 1.5}  ->  {"said": "found", "answer": "18"}
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its module names are not meant to be importable from the top

import contextlib
import json
import math
import os
import re
import resource
import signal
from typing import Any, BinaryIO

_LOOSE_TOLERANCE = 1e-4
_LONGEST_FOUND = 2_001  # characters: one more than any answer that is read


def judge(gold: str, answer: str, loose: bool) -> str:
    """equal | different | unparsable, by math-verify; `loose` adds the rules of the qwen grader."""
    gold_parsed, answer_parsed = _parse(gold), _parse(answer)
    if not gold_parsed or not answer_parsed:
        return "unparsable"
    from math_verify import verify

    if verify(gold_parsed, answer_parsed, float_rounding=12, timeout_seconds=None):
        return "different" if not loose and _far_apart(gold_parsed[0], answer_parsed[0]) else "equal"
    if loose and _loosely_equal(gold_parsed[0], answer_parsed[0]):
        return "equal"
    readable = all(not isinstance(side[0], str) for side in (gold_parsed, answer_parsed))
    return "different" if readable else "unparsable"


def _parse(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    parsed: list[Any] = parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None)
    return parsed


def _far_apart(gold: Any, answer: Any) -> bool:
    """Whether two numbers differ by more than rounding: to math-verify all numbers below 1e-12 are equal."""
    from sympy import N

    with contextlib.suppress(Exception):
        if not gold.free_symbols and not answer.free_symbols:
            first, second = N(gold, 40), N(answer, 40)
            return bool(abs(first - second) > 1e-12 * max(abs(first), abs(second)))
    return False


def _loosely_equal(gold: Any, answer: Any) -> bool:
    from sympy import N, simplify

    with contextlib.suppress(Exception):
        if gold.equals(answer) or simplify(gold - answer) == 0:
            return True
    with contextlib.suppress(Exception):
        if abs(gold.lhs - gold.rhs).equals(abs(answer.lhs - answer.rhs)):
            return True
    with contextlib.suppress(Exception):
        return math.isclose(float(N(gold)), float(N(answer)), rel_tol=_LOOSE_TOLERANCE)
    return False


def find(pattern: str, text: str) -> dict[str, str]:
    """What the group of the pattern holds where it matches last and holds something."""
    answer = ""
    for match in re.finditer(pattern, text):
        answer = (match[1] or "").strip() or answer
    return {"said": "found", "answer": answer[:_LONGEST_FOUND]} if answer else {"said": "none"}


def _reply(request: dict[str, Any]) -> dict[str, str]:
    if "pattern" in request:
        return find(request["pattern"], request["text"])
    return {"said": judge(request["gold"], request["answer"], request["loose"])}


def _serve(requests: BinaryIO, replies: int, memory_bytes: int) -> None:
    """The child: answer until the pipe closes."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while line := requests.readline():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        try:
            reply = _reply(request)
        except MemoryError:
            reply = {"said": "memory"}
        except Exception:
            reply = {"said": "unparsable"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(replies, json.dumps(reply).encode() + b"\n")


def main(memory_bytes: int, task: str = "algebra") -> None:
    """The host: keep one child alive."""
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing a library prints may reach the pipe
    if task == "algebra":
        judge("x+1", "1+x", False)  # imports and builds patterns once, for all children
    died = 0
    while True:
        os.write(replies, json.dumps({"ready": True, "died": died}).encode() + b"\n")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _serve(sys.stdin.buffer, replies, memory_bytes)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
