import json
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trimsft.text.visible import json_for_script, spaced, visible


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert visible("a\u202eb\u2066c\u200bd\x00e\x7ff\ufeffg") == (
        "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200B⟩d⟨U+0000⟩e⟨U+007F⟩f⟨U+FEFF⟩g"
    )
    assert visible("\ud800") == "⟨U+D800⟩"
    assert visible("\U000e0041 \u2028") == "⟨U+E0041⟩ ⟨U+2028⟩"
    assert visible("2 \\le 3 <b>é漢字😀\n\tx") == "2 \\le 3 <b>é漢字😀\n\tx"


def test_spaces_of_tokens_are_shown() -> None:
    assert spaced(" the\n") == "·the↵\n"
    assert spaced("\t\r\u00a0\u3000") == "⇥⟨U+000D⟩⍽⟨U+3000⟩"
    assert spaced("\u0301a") == "\u25cc\u0301a"
    assert spaced("") == ""


def test_no_character_slips_through() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if unicodedata.category(letter) in hidden and letter not in "\n\t":
            assert visible(letter) != letter, hex(code)


def test_json_in_a_script_element_has_no_markup() -> None:
    assert json_for_script("</script><!--&") == '"\\u003c/script\\u003e\\u003c!--\\u0026"'


@given(st.recursive(st.text() | st.floats(-9, 9), lambda inner: st.lists(inner, max_size=3)))
def test_json_survives_and_cannot_end_its_element(data) -> None:
    text = json_for_script(data)
    assert json.loads(text) == data
    assert not set(text) & set("<>&\u2028\u2029")
    assert text.isascii()
