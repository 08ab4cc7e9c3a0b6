"""The training data token by token, before any training: `preview(settings, count=3)`, and `show` for a terminal.

    row 0: 61 tokens, 45 masked, 16 trained; eos is trained
    masked, 45 tokens
    <|im_start|>user↵
    What·is·1+1?<|im_end|>↵
    <|im_start|>assistant↵
    trained, 16 tokens
    It·is·\\boxed{2}.<|im_end|>

Text of data and tokenizers is not trusted: nothing in it is read as markup, and no control character, escape
sequence or invisible character reaches the terminal.
"""

import copy
import itertools
import tempfile
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.trainer_utils import IntervalStrategy

from trimsft.data.encode import LengthReport, kept_window, measure_lengths
from trimsft.data.templates import Keep
from trimsft.data.visible import TokenTexts, spaced
from trimsft.errors import counted
from trimsft.head import IGNORED
from trimsft.train.config import Settings, load_data, load_tokenizer, refusing
from trimsft.train.trainer import TrimSFTTrainer

_STYLES = {
    "masked": ("dim", "dim"),
    "trained": ("black on green", "black on cyan"),  # in turn, so that the borders of tokens show
    "cut": ("red strike", "red strike"),
}


@dataclass(frozen=True)
class Preview:
    """The first rows as the trainer sees them, each a dictionary of plain values, and the lengths of all rows."""

    examples: list[dict[str, Any]]
    lengths: LengthReport


def preview(settings: Settings, *, count: int = 3) -> Preview:
    """Return the first `count` rows as training with these settings would see them; nothing is written."""
    tokenizer, limit = load_tokenizer(settings), settings.args.max_length
    prepared = prepare(settings, tokenizer, max_length=None)
    keep: Keep = "start" if settings.args.truncation_mode == "keep_start" else "end"
    examples = examine(prepared, tokenizer, count=count, max_length=limit, keep=keep)
    return Preview(examples, measure_lengths(prepared, limit, keep=keep))


def prepare(settings: Settings, tokenizer: Any, *, max_length: int | None) -> Any:
    """Return the data as the training would prepare it, by the trainer itself with a model of next to no size."""
    train, _ = load_data(settings, tokenizer)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    tiny = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))
    args = copy.copy(settings.args)
    args.model_init_kwargs, args.packing, args.report_to = None, False, []
    args.max_length, args.eval_strategy = max_length, IntervalStrategy.NO
    with refusing(), tempfile.TemporaryDirectory() as folder:  # Trainer makes its folder at once
        args.output_dir = folder
        return TrimSFTTrainer(tiny, args, train_dataset=train, processing_class=tokenizer).train_dataset


def examine(
    dataset: Any, tokenizer: Any, *, count: int, max_length: int | None = None, keep: Keep = "start"
) -> list[dict[str, Any]]:
    """Return the first `count` rows of a tokenised dataset, token by token; the fate of a token is its mask."""
    texts, special, examples = TokenTexts(tokenizer), set(tokenizer.all_special_ids), []
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    for number, row in enumerate(dataset.with_format(None).select(range(min(count, len(dataset))))):
        low, high = kept_window(len(row["labels"]), max_length, keep)
        tokens = []
        for at, (token, label) in enumerate(zip(row["input_ids"], row["labels"], strict=True)):
            # the first token left is predicted by nothing, whatever its label
            fate = "cut" if not low <= at < high else "masked" if label == IGNORED or at == low else "trained"
            tokens.append({"id": token, "text": texts[token], "fate": fate, "special": token in special})
        # a chat template may put a line break behind it
        last = [token for token in tokens if token["fate"] != "cut"][-2:]
        eos_trained = any(token["fate"] == "trained" and token["id"] == tokenizer.eos_token_id for token in last)
        counts = {f"{fate}_tokens": sum(token["fate"] == fate for token in tokens) for fate in _STYLES}
        examples.append({"row": number, **counts, "eos_trained": eos_trained, "tokens": tokens})
    return examples


def show(seen: Preview, console: Console) -> None:
    """Print the examples, the prompt dim and trained tokens in colour, and a line on all rows."""
    for row in seen.examples:
        cut = f", {row['cut_tokens']:,} lost to the maximum length" if row["cut_tokens"] else ""
        head = f"row {row['row']}: {counted(len(row['tokens']), 'token')}, {row['masked_tokens']:,} masked"
        head += f", {row['trained_tokens']:,} trained{cut}; eos is {'' if row['eos_trained'] else 'NOT '}trained"
        console.print(Text(head, style="bold"), soft_wrap=True)
        for fate, group in itertools.groupby(row["tokens"], key=lambda token: token["fate"]):
            tokens, drawn = list(group), Text()
            console.print(Text(f"{fate}, {counted(len(tokens), 'token')}", style="italic"))
            for number, token in enumerate(tokens):
                style = _STYLES[fate][number % 2] + (" bold underline" if token["special"] else "")
                drawn.append(spaced(token["text"]) or f"<token {token['id']}>", style=style)
            console.print(drawn, soft_wrap=True, end="" if drawn.plain.endswith("\n") else "\n")
        console.print()
    console.print(f"all rows: {seen.lengths}", soft_wrap=True)
