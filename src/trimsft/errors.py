r"""What an error says, as users are told it.

>>> one_line(ValueError("no such file:\n  rows.jsonl"))
'no such file: rows.jsonl'
>>> one_line(KeyboardInterrupt())
'KeyboardInterrupt'
"""


def one_line(error: BaseException) -> str:
    """On one line; its name where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
