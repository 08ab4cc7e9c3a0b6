from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.tokens.tiny import make_tokenizer
from trimsft.text.token_texts import TokenTexts


def test_tokens_in_a_text_keep_their_spaces() -> None:
    tokenizer = make_tokenizer(adds_bos=True)
    texts = TokenTexts(tokenizer)
    ids = tokenizer(" It is  so.\n", add_special_tokens=False)["input_ids"]
    assert "".join(texts[token] for token in ids) == " It is  so.\n"
    assert texts[tokenizer.eos_token_id] == "<eos>"


def test_decoders_that_strip_the_first_space_do_not_matter() -> None:
    words = ["<unk>", "<eos>", "▁a", "▁the", "sum", "▁"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<eos>")
    assert tokenizer.decode([3]) == "the"
    assert [TokenTexts(tokenizer)[token] for token in (3, 4)] == [" the", "sum"]


def test_parts_of_a_character_are_shown_as_bytes() -> None:
    tokenizer = make_tokenizer()
    texts = TokenTexts(tokenizer)
    ids = tokenizer("€\u00ad", add_special_tokens=False)["input_ids"]
    assert "".join(texts[token] for token in ids) == "<0xE2><0x82><0xAC><0xC2><0xAD>"


def test_ids_beyond_the_vocabulary_have_a_name() -> None:
    assert TokenTexts(make_tokenizer())[100_000] == "<id 100000>"
