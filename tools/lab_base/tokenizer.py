"""The tokenizer of the lab: every word of the task one piece, every digit its own, anything else in bytes.

    Step |1|: |1|2| * |3| = |3|6|.\\n|The |answer |is |\\boxed{|3|6|}|.|<eos>

A piece keeps the spaces around it, so that numbers are bare digits wherever they stand. The instruction that the
project puts before every problem is a single piece: it says the same each time, and prompts stay short.

    Please reason step by step, and put your final answer within \\boxed{}.
    Problem: Start with 7. Add 5. What is the result?
    Solution:
"""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import islice
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.lab.task import TIERS, draw_problems, write_solution
from trimsft.lab.wording import FILLER, STYLES

PAD, EOS = "<pad>", "<eos>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'Problem: ' + message['content'] + '\\nSolution:\\n' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
_PIECE = r"\\[a-z]+\{| ?[A-Za-z]+,? ?|[0-9]| ?[^\sA-Za-z0-9\\{}]+[ \n]?|[\s\S]"
_SAMPLE = 2000
"""Problems of each tier whose words become pieces: enough to meet every one."""


def render_prompt(problem: str) -> str:
    """Return what the chat template makes of a problem under the project's instruction."""
    return f"{SYSTEM_PROMPT}\nProblem: {problem}\nSolution:\n"


def split(text: str) -> list[str]:
    """Return the pieces of a text, before unknown ones fall into bytes."""
    return re.findall(_PIECE, text)


@cache
def pieces() -> tuple[str, ...]:
    """Return every piece of the task, in the order of the alphabet."""
    found = set("0123456789")
    rng = random.Random("pieces")
    for tier in TIERS:
        for problem in islice(draw_problems(tier, "pieces", "training"), _SAMPLE):
            found.update(split(render_prompt(problem.problem).removeprefix(SYSTEM_PROMPT)))
            for style in STYLES:
                found.update(split(write_solution(problem, style, rng, filler_rate=0.5).text))
    for sentence in FILLER:
        found.update(split(sentence))
    return tuple(sorted(found))


def build_backend() -> Any:
    """Return the tokenizer of the `tokenizers` library."""
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = ["".join(word for word, _ in by_bytes.pre_tokenize_str(piece)) for piece in pieces()]
    entries = dict.fromkeys([PAD, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words])
    # no merges: a piece is in the vocabulary as it is, or it is spelt in bytes
    backend = Tokenizer(models.BPE(vocab={entry: i for i, entry in enumerate(entries)}, merges=[], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"), by_bytes]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(PAD, normalized=False), AddedToken(EOS, normalized=False)])
    backend.add_tokens([AddedToken(SYSTEM_PROMPT, normalized=False)])
    return backend


def build_tokenizer() -> Any:
    """Return the same for transformers, with its chat template."""
    # here: the processes that tokenise the corpus do without transformers
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=build_backend(),
        pad_token=PAD,
        eos_token=EOS,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )
