"""The lab's base model can be made again: corpus, tokenizer, batches, and the command that writes its folder."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.lab_base.pretrain import main
from tools.lab_base.tokenizer import build_tokenizer, render_prompt
from trimsft import lab
from trimsft.data.encode import encode_prompts, encode_texts
from trimsft.data.templates import choose_template
from trimsft.lab.task import draw_problems, write_solution

FEW = ["--size", "tiny", "--examples", "300", "--batch-tokens", "1024", "--processes", "1", "--steps", "60"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return two folders of the same command."""
    both = [tmp_path_factory.mktemp(name) for name in "ab"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only loses time to more
    for folder in both:
        main(["--out", str(folder), *FEW])
    torch.set_num_threads(threads)
    return both


@pytest.fixture(scope="module")
def tokenizer(folders):
    return AutoTokenizer.from_pretrained(folders[0])


def test_the_command_repeats_and_learns(folders) -> None:
    a, b = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert a == b
    stored = load_file(folders[0] / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16} and "lm_head.weight" not in stored
    model = AutoModelForCausalLM.from_pretrained(folders[0])
    assert model.dtype == torch.float32 and model.lm_head.weight is model.model.embed_tokens.weight
    log = [json.loads(line) for line in (folders[0] / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 60 and log[-1]["loss"] < 4.5  # log(496) = 6.2 to begin with
    sheet = (folders[0] / "README.md").read_text()
    assert "python -m tools.lab_base.pretrain --out DIR --examples 300 --size tiny" in sheet
    assert str(folders[0]) not in sheet


def test_a_model_that_is_there_is_not_replaced(tmp_path, capsys) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path)])
    assert "holds a model already" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").read_bytes() == b"precious"


def test_prompts_are_those_of_pretraining(tokenizer) -> None:
    """So are the pieces of the shipped base; a solution is encoded as it is behind its prompt."""
    shipped = AutoTokenizer.from_pretrained(lab.base_model_path())
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab() == shipped.get_vocab()
    problem = next(draw_problems("lab-medium", 0, "training"))
    prompt, solution = render_prompt(problem.problem), write_solution(problem, "steps").text
    template = choose_template("auto", tokenizer)
    assert template.render([problem.problem]) == [prompt] and template.end == tokenizer.eos_token
    first, second, together = encode_texts([prompt, solution, prompt + solution], tokenizer)
    assert encode_prompts([problem.problem], tokenizer, template)[0] == first and together == first + second
