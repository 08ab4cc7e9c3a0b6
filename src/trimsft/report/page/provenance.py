"""What the page was made from, in words: inputs of each token table, what was cut, which tables do not compare.

>>> table_facts({"model": "m", "data": {"rows": 480}, "template": "chat", "system_prompt": None, "max_length": 64})
'tokens of m, 480 rows, template chat, the usual system prompt, rows of at most 64 tokens'
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.data.visible import visible
from trimsft.errors import counted
from trimsft.report.runs import Run
from trimsft.runs import by_dotted_name
from trimsft.runs.secrets import without_folders

_FIXED_PROMPTS = {None: "the usual system prompt", "": "no system prompt"}


def lead(runs: Sequence[Run]) -> str:
    """How many runs there are, and which files the page was made from."""
    files = sum(run.folder.is_file() for run in runs)
    folders = len(runs) - files
    sources = [f"the run director{'y' if folders == 1 else 'ies'}"] if folders else []
    sources += [("a token table" if files == 1 else "token tables")] if files else []
    made = f"Everything on this page was made from {' and '.join(sources)}; it loads nothing."
    return f"{counted(len(runs), 'run')}. {made}"


def facts_of(settings: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, str]:
    """What was run: settings but for empty ones, versions, commands, and where each run is."""
    facts = flat(settings)
    versions: dict[str, Any] = {}
    for run in runs:
        recorded = [*run.versions, run.table.metadata.get("versions") if run.table is not None else None]
        for some in recorded:
            versions |= {name: value for name, value in (some or {}).items() if value}
    if versions:
        facts.setdefault("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))
    commands: dict[str, list[str]] = {}
    for run in runs:
        if command := run.manifest.get("command"):
            commands.setdefault(str(command), []).append(run.label)
    facts |= {f"command of {', '.join(labels)}": command for command, labels in commands.items()}
    for run in runs:
        name = run.label
        while name in facts:  # the label of a run does not take the place of a setting
            name = f"run {name}"
        facts[name] = "; ".join(
            [str(run.folder), *([table_facts(run.table.metadata)] if run.table is not None else [])]
        )
    return {visible(name): visible(without_folders(value)) for name, value in facts.items() if value.strip()}


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings as texts by name, without empty objects.

    >>> flat({"sampling": {"temperature": 1.0, "stop": ["Q:", "A:"]}, "engine": {}})
    {'sampling.temperature': '1.0', 'sampling.stop': 'Q:, A:'}
    """
    values = {name: value for name, value in by_dotted_name(settings) if not isinstance(value, Mapping)}
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }


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
    cut = metadata.get("cut") or {}
    rows, tokens, lost = (int(cut.get(name) or 0) for name in ("rows_cut", "tokens_cut", "rows_lost"))
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
