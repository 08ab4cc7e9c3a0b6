"""What the page was made from, in words: inputs of each token table, what was cut, which tables do not compare.

table_facts({"model": "m", "data": {"rows": 480}, "template": "chat", "system_prompt": None, "max_length": 64})
# 'tokens of m, 480 rows, template chat, the usual system prompt, rows of at most 64 tokens'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.errors import RunError
from trimsft.report.page.sources import Run
from trimsft.text.visible import visible
from trimsft.tokens.table import same_tokens

_FIXED_PROMPTS = {None: "the usual system prompt", "": "no system prompt"}


def table_facts(metadata: Mapping[str, Any]) -> str:
    """How one table was made; what its file does not record is left out."""
    facts = [f"tokens of {metadata.get('model', '?')}", f"{metadata.get('data', {}).get('rows', '?')} rows"]
    if "template" in metadata:
        facts.append(f"template {metadata['template']}")
    if "system_prompt" in metadata:
        prompt = metadata["system_prompt"]
        facts.append(_FIXED_PROMPTS.get(prompt, f"system prompt “{prompt}”"))
    if "max_length" in metadata:
        length = metadata["max_length"]
        facts.append(f"rows of at most {length:,} tokens" if length else "no limit of length")
    return visible(", ".join([*facts, *filter(None, [cut_words(metadata)])]))


def cut_words(metadata: Mapping[str, Any]) -> str:
    """What the limit of length took away; empty where that was nothing, or is not recorded."""
    found = metadata.get("cut") or {}
    rows, tokens, lost = (int(found.get(name) or 0) for name in ("rows_cut", "tokens_cut", "rows_lost"))
    if not rows and not lost:
        return ""
    whole = f", {lost:,} of them with the whole solution" if lost else ""
    return f"{counted(rows, 'row')} cut by {counted(tokens, 'token')}{whole}"


def cut_notes(runs: Sequence[Run]) -> list[str]:
    """A sentence for each run whose table lost something."""
    return [
        visible(f"{run.label}: {words}, at max_length {run.table.metadata.get('max_length')}.")
        for run in runs
        if run.table is not None and (words := cut_words(run.table.metadata))
    ]


def incomparable(runs: Sequence[Run]) -> dict[str, str]:
    """Label -> why its tokens do not compare with those of the first run that has any."""
    with_tokens = {run.label: run.table for run in runs if run.table}
    reasons: dict[str, str] = {}
    for label in list(with_tokens)[1:]:
        first = next(iter(with_tokens))
        try:
            same_tokens({first: with_tokens[first], label: with_tokens[label]})
        except RunError as error:
            reasons[label] = visible(str(error).removeprefix("tables: "))
    return reasons


def lead(runs: Sequence[Run]) -> str:
    """How many there are, and which files the page was made from."""
    files = sum(run.folder.is_file() for run in runs)
    folders = len(runs) - files
    sources = [f"the run director{'y' if folders == 1 else 'ies'}"] if folders else []
    sources += [("a token table" if files == 1 else "token tables")] if files else []
    made = f"Everything on this page was made from {' and '.join(sources)}; it loads nothing."
    return f"{counted(len(runs), 'run')}. {made}"


def counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
