"""Texts of tokens and models, with nothing hidden."""

import sys
import unicodedata

from trimsft.data.visible import TokenTexts, visible

from .toys import make_tokenizer


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert visible("a\u202eb\x00c\ud800 \u2028") == "a⟨U+202E⟩b⟨U+0000⟩c⟨U+D800⟩ ⟨U+2028⟩"
    assert visible("2 \\le 3 <b>é漢字😀\n\tx") == "2 \\le 3 <b>é漢字😀\n\tx"


def test_no_character_slips_through() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if unicodedata.category(letter) in hidden and letter not in "\n\t":
            assert visible(letter) != letter, hex(code)


def test_tokens_in_a_text_keep_their_spaces() -> None:
    tokenizer = make_tokenizer(adds_bos=True)
    texts = TokenTexts(tokenizer)
    ids = tokenizer(" It is  so.\n", add_special_tokens=False)["input_ids"]
    assert "".join(texts[token] for token in ids) == " It is  so.\n"
    assert texts[tokenizer.eos_token_id] == "<eos>"
    assert texts[100_000] == "<id 100000>"  # an embedding may be larger than its vocabulary


def test_parts_of_a_character_are_shown_as_bytes() -> None:
    tokenizer = make_tokenizer()
    texts = TokenTexts(tokenizer)
    ids = tokenizer("€\u00ad", add_special_tokens=False)["input_ids"]
    assert "".join(texts[token] for token in ids) == "<0xE2><0x82><0xAC><0xC2><0xAD>"
