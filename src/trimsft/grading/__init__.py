"""Grading: is the answer that a response states the gold? See docs/grading.md for the rules."""

from trimsft.grading.boxes import extract_answer
from trimsft.grading.grader import Grader, grade
from trimsft.grading.own import Scorer, load_scorer
from trimsft.grading.rules import GRADER_VERSION, Grade, Grading, Rules

__all__ = [
    "GRADER_VERSION", "Grade", "Grader", "Grading", "Rules", "Scorer", "extract_answer", "grade", "load_scorer",
]  # fmt: skip
