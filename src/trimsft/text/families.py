"""Which prompt a model of each family gets in evaluation where nobody named one: `--template auto`.

The paper does not print its prompts; the recipe that it follows evaluates each family of its base models with a fixed
text (see `trimsft.text.templates`). A family is known by what its tokenizer does and holds, never by a name or a path,
which change when a model is trained or moved:

    family        chat template                              tokens                                  template
    Qwen 2, 2.5   ChatML, with a system message of its own   <|im_end|>, <|endoftext|>, no bos       qwen-boxed
    DeepSeekMath  none, or "User: ...\\n\\nAssistant:"         begin_of_sentence as bos, full-width     deepseek
    Llama 3 base  none                                       <|begin_of_text|>, <|start_header_id|>  llama-base-boxed
    any other     its own                                                                            chat
    any other     none                                                                               plain
"""

from __future__ import annotations

from typing import Any

from trimsft.text.templates import SYSTEM_PROMPT, ChatTemplate, PromptTemplate, TemplateError, choose_template

_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA_3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>")
_DEEPSEEK_BOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
_DEEPSEEK_CHAT = "<\uff5cUser\uff5c>"  # later models have it, whose prompts differ


def choose_for_family(tokenizer: Any, system_prompt: str | None) -> tuple[str, PromptTemplate, str]:
    """The template's name, the template, and in one line why it is that one."""
    name, why = recognise(tokenizer)
    if system_prompt is not None and name not in ("chat", "plain"):
        fixed, name = name, "chat" if tokenizer.chat_template else "plain"
        why = f"{fixed} would be the published one, but its text has no place for the system prompt given"
    template = choose_template(name, tokenizer, system_prompt) if name != "chat" else None
    if template is None:
        template = _own_chat(tokenizer, SYSTEM_PROMPT if system_prompt is None else system_prompt)
        if template.request:
            why += ", which takes no system message, so the instruction stands in the user's"
    return name, template, f"template auto: {name}, because {why}"


def recognise(tokenizer: Any) -> tuple[str, str]:
    """The name of a template and what speaks for it."""
    has_chat = bool(getattr(tokenizer, "chat_template", None))
    vocabulary = tokenizer.get_vocab()
    has_qwen_tokens = tokenizer.bos_token is None and all(mark in vocabulary for mark in _QWEN)
    has_deepseek_tokens = tokenizer.bos_token == _DEEPSEEK_BOS and _DEEPSEEK_CHAT not in vocabulary
    if has_chat and has_qwen_tokens and _is_chatml(tokenizer):
        return "qwen-boxed", "the tokenizer has Qwen's tokens and its ChatML template"
    if has_deepseek_tokens and (not has_chat or _rendered(tokenizer, []).endswith("User: ?\n\nAssistant:")):
        return "deepseek", "the tokenizer is DeepSeek's, of models that know User: and Assistant:"
    if not has_chat and all(mark in vocabulary for mark in _LLAMA_3):
        return "llama-base-boxed", "the tokenizer is that of Llama 3, without a chat template"
    if has_chat:
        return "chat", "the tokenizer has a chat template of its own"
    return "plain", "the tokenizer has no chat template"


def _is_chatml(tokenizer: Any) -> bool:
    """ChatML that writes a system message where none is given; Qwen 3, which may think first, writes none."""
    question = "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    system = [{"role": "system", "content": "Be brief."}]
    takes_system = _rendered(tokenizer, system) == f"<|im_start|>system\nBe brief.<|im_end|>\n{question}"
    alone = _rendered(tokenizer, [])
    return takes_system and alone.startswith("<|im_start|>system\n") and alone.endswith(question)


def _rendered(tokenizer: Any, before: list[dict[str, str]]) -> str:
    chat = [*before, {"role": "user", "content": "?"}]
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except Exception:  # templates raise whatever they like
        return ""


def _own_chat(tokenizer: Any, instruction: str) -> ChatTemplate:
    try:
        return ChatTemplate(tokenizer, instruction)
    except TemplateError as refused:
        try:
            return ChatTemplate(tokenizer, "", request=instruction)
        except TemplateError:
            raise refused from None
