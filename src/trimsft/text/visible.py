"""Text that a model wrote, made safe to look at: nothing invisible, nothing that reorders what stands around it.

    >>> visible("a\\u202eb")
    'a⟨U+202E⟩b'
    >>> spaced(" the\\n")
    '·the↵\\n'

HTML is escaped elsewhere, by the template; here only characters are dealt with that escaping leaves as they are.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Control, format (bidi marks, zero width, tags), surrogate, private, unassigned, line and paragraph separators."""
_FILLERS = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800"}
"""Letters and symbols that look like nothing."""
_KEPT = {"\n", "\t"}


def visible(text: object) -> str:
    """The text with whatever cannot be seen spelt out; line breaks and tabs stay."""
    return "".join(_shown(letter) for letter in str(text))


def spaced(text: str) -> str:
    """The same for a token, whose spaces and line breaks are shown too."""
    shown = visible(text)
    # alone, an accent would sit on the token before it
    if text and unicodedata.category(text[0]).startswith("M"):
        shown = "\u25cc" + shown
    return shown.replace(" ", "·").replace("\t", "⇥").replace("\n", "↵\n")


def json_for_script(data: Any) -> str:
    """JSON that no HTML parser can mistake for anything else."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shown(letter: str) -> str:
    if letter in _KEPT or (letter.isascii() and letter.isprintable()):
        return letter
    category = unicodedata.category(letter)
    odd_space = category == "Zs" and letter != "\u00a0"
    if category in _HIDDEN or letter in _FILLERS or odd_space:
        return f"⟨U+{ord(letter):04X}⟩"
    return "⍽" if letter == "\u00a0" else letter
