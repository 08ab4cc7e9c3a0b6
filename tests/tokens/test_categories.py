"""The rules of docs/analysis.md, on LaTeX as models write it and tokenizers split it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.tokens.categories import CATEGORIES, CONNECTORS, PHRASES, categorise


def kinds(*texts: str) -> str:
    return "".join(CATEGORIES[kind][0] for kind in categorise(texts))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["\\", "frac", "{", "1", "}{", "2", "}"], "sssnsns"),
        ([" \\", "times", " ", "3"], "sson"),
        (["\\", "box", "ed", "{", "4", "2", "}"], "ssssnns"),
        (["\\boxed{", "7}", "$."], "sns"),
        (["x", "_{", "1", "2", "}"], "osnns"),
        (["\\", "left", "(", "\\", "right", ")"], "ssssss"),
        (["\\", "(", "a", "\\", ")"], "ssoss"),
        (["\\[", " n", "!", " =", " \\", "alpha", "\\]"], "sossss" + "s"),
        (["\\", "text", "{", " if", " }"], "ooscs"),
        (["\\", "begin", "{", "align", "*}", " a", " &", "=", " b", " \\\\", "\\end{align*}"], "ooooo" + "oosooo"),
        (["5", "\\", "%", " \\", "$", "3"], "nssssn"),
        (["\\", "therefore", " x", " \\", "implies", " y"], "ccosso"),
        (["1", ",", "0", "0", "0"], "nnnnn"),
        (["1", "{", ",", "}", "0", "0", "0"], "nnnnnnn"),
        (["1", ",\\", "!", "0", "0", "0"], "nnnnnn"),
        (["3", ".", "1", "4", "."], "nnnno"),
        (["1", ",", "2"], "non"),  # a list: three digits follow a separator of thousands
        (["1", ",", "2", "3", "4", "5"], "nonnnn"),
        (["3", ":", "4", ":", " yes"], "nsnoo"),
        ([".", "5", " ½", " x", "²"], "nnnon"),
        (["5", "!", " Great", "!"], "nsos"),  # after a word it may be n!
        (["$", "5", " -", "2", "%"], "snsns"),
    ],
)
def test_latex_and_numbers(texts: list[str], expected: str) -> None:
    assert kinds(*texts) == expected


@pytest.mark.parametrize("word", sorted(CONNECTORS))
def test_connectors_in_any_case_with_or_without_a_space(word: str) -> None:
    assert kinds(word, " " + word.upper(), " ", word.capitalize()) == "ccoc"
    assert kinds(word[:2], word[2:] + ",", " x") == ("cco" if word[2:] else "coo")  # split by the tokenizer
    assert kinds("x" + word, word + "x", "\\" + word)[:2] == "oo"


@pytest.mark.parametrize("phrase", PHRASES)
def test_connectors_of_several_words(phrase: str) -> None:
    words = phrase.split(" ")
    assert kinds(*(f" {word}" for word in words), ".") == "c" * len(words) + "o"
    assert kinds(*(f" {word.title()}\n" for word in words)) == "c" * len(words)


def test_text_is_not_mathematics() -> None:
    assert kinds(" two", "-", "digit") == "ooo"
    assert kinds("x", "-", "2", " -", " y") == "osnso"  # but a minus is
    assert kinds("**", "Step", " **", "\n", "- ", "a", "\n##", " b") == "oooooooo"
    assert kinds("- ", "a", " *", " b") == "ooso"
    assert kinds(".", ",", ";", "?", "\n\n", " ", '"', "...") == "oooooooo"
    assert kinds("a", "b", "x", "theta") == "oooo"  # variables look like any other letter


@given(st.data())
def test_how_a_text_is_split_moves_no_category(data: st.DataObject) -> None:
    """Cut anywhere, each character keeps its category."""
    text = r"Since $\frac{3}{4} \times 1,200 = 900$, it follows that x-2 > 1.5; so \boxed{900}."
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=20)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = categorise(list(text))
    rank = np.array([3, 1, 2, 0])  # numeric, connector, symbol, other
    start = 0
    for piece, kind in zip(pieces, categorise(pieces), strict=True):
        part = whole[start : start + len(piece)]
        assert rank[kind] == rank[part].max()
        start += len(piece)
