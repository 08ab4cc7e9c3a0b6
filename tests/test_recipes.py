"""The recipes are the paper's, their keys exist, and what the README of the folder says is so."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from trl import ModelConfig, TrlParser

from trimsft.data.load import DataConfig
from trimsft.plan import Training, config_of, peak_gib, shape_of
from trimsft.train.config import TrimSFTConfig

RECIPES = Path(__file__).parents[1] / "recipes"
ALL = sorted(path.name for path in RECIPES.glob("*.yaml"))
ACCELERATE = sorted(path.name for path in (RECIPES / "accelerate").glob("*.yaml"))
README = (RECIPES / "README.md").read_text()
STUDIES = (RECIPES.parent / "docs" / "studies.md").read_text()

MODELS = {
    "qwen2.5-math-1.5b.yaml": "Qwen/Qwen2.5-Math-1.5B",
    "qwen2.5-math-7b.yaml": "Qwen/Qwen2.5-Math-7B",
    "qwen3-4b-base.yaml": "Qwen/Qwen3-4B-Base",
    "llama-3.2-3b.yaml": "meta-llama/Llama-3.2-3B",
    "llama-3.1-8b.yaml": "meta-llama/Llama-3.1-8B",
    "deepseek-math-7b.yaml": "deepseek-ai/deepseek-math-7b-base",
}
"""The six models, by their names on the hub."""


def parse(name: str | Path, *overrides: str) -> tuple[DataConfig, TrimSFTConfig, ModelConfig]:
    """As `trimsft train` does; bf16 is refused where there is neither a GPU nor `use_cpu`."""
    words = ["--config", str(RECIPES / name), "--use_cpu", "true", "--output_dir", "unused", *overrides]
    return TrlParser((DataConfig, TrimSFTConfig, ModelConfig)).parse_args_and_config(words)


@pytest.mark.parametrize("name", ALL)
def test_every_key_is_a_field(name) -> None:
    parse(name)
    # runs of different methods get different folders
    assert "output_dir" not in yaml.safe_load((RECIPES / name).read_text())


@pytest.mark.parametrize("name", MODELS)
def test_settings_are_those_of_the_paper(name) -> None:
    data, args, model = parse(name)
    assert model.model_name_or_path == MODELS[name]
    assert (data.dataset_name, data.sample) == ("AI-MO/NuminaMath-CoT", 20_000)
    assert (args.num_train_epochs, args.max_length, args.packing) == (1, 2048, False)
    assert (args.learning_rate, args.lr_scheduler_type, args.optim) == (5e-5, "cosine", "adamw_torch_fused")
    assert args.global_batch == 24
    assert (args.bf16, model.dtype, model.attn_implementation) == (True, "float32", "flash_attention_2")
    assert (args.objective, args.margin, args.bandwidth, args.gamma) == ("trim", 1.5, 0.8, 2.0)
    # what the paper leaves open, from the recipe it follows
    assert args.get_warmup_steps(834) == 84
    assert (args.max_grad_norm, args.weight_decay) == (1.0, 0.01)
    assert (args.adam_beta1, args.adam_beta2) == (0.9, 0.95)


@pytest.mark.parametrize("name", ACCELERATE)
def test_accelerate_takes_its_configs(name, monkeypatch) -> None:
    path = str(RECIPES / "accelerate" / name)
    config = load_config_from_file(path)
    args = launch_command_parser().parse_args(["--config_file", path, "-m", "trimsft"])
    args, _, _ = _validate_launch_command(args)
    assert config.mixed_precision == "bf16" and set(config.fsdp_config) <= set(vars(args))
    assert args.use_fsdp is (name in ("fsdp2.yaml", "multi_node.yaml"))
    for key, value in config.fsdp_config.items():
        monkeypatch.setenv(key.upper(), str(value))
    if args.use_fsdp:
        plugin = FullyShardedDataParallelPlugin()
        assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
        assert not plugin.activation_checkpointing, "the Trainer refuses it together with gradient_checkpointing"
        assert "FULL_STATE_DICT" in str(plugin.state_dict_type), "save_model writes nothing otherwise"


@pytest.mark.parametrize("processes", [1, 2, 3, 8, 24])
def test_the_table_says_how_the_batch_is_shared(processes, monkeypatch) -> None:
    rows = re.findall(r"^\| (\d+) \| (accelerate/.*?) \| (\d+) x (\d+) \|$", README, re.MULTILINE)
    launch, micro, accumulation = {int(count): rest for count, *rest in rows}[processes]
    asked = re.findall(r"--num_processes (\d+)", launch)
    for config in re.findall(r"accelerate/\w+\.yaml", launch):
        shipped = load_config_from_file(str(RECIPES / config)).num_processes
        assert (int(asked[0]) if asked else shipped) == processes
    monkeypatch.setattr(TrimSFTConfig, "world_size", processes)
    _, args, _ = parse("llama-3.1-8b.yaml")
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (int(micro), int(accumulation))
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps * processes == 24


STAND_INS = {
    # one task; Slurm's own signals reach it by scancel, as the processes of a step are reached
    "srun": 'echo "srun $1 $2"; shift 2; BATCH=$PPID "$@" & echo $! > "$HERE/task"; wait $!',
    "scancel": 'echo "scancel $*"; kill -TERM "$(cat "$HERE/task")"',
    "scontrol": '[ "$1" = show ] && { echo one; echo two; } || echo "scontrol $*"',
    # a training that is told to end at its time limit: it saves, and ends with a code that is not 0
    "accelerate": """echo "$@"
trap 'kill $!; echo "saved within $TORCH_ELASTIC_SHUTDOWN_TIMEOUT s"; exit 1' TERM
sleep 60 & kill -USR1 "$BATCH"
wait""",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_batch_script_starts_a_process_for_every_gpu_and_saves_in_time(tmp_path) -> None:
    for name, body in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = RECIPES / "slurm" / "train.sbatch"
    slurm = {"SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    slurm |= {"SLURM_JOB_ID": "7", "SLURM_NODEID": "1"}
    asked = {"SLURM_GPUS_PER_NODE": "a100:4", "SLURM_CPUS_PER_TASK": "32"}
    done = subprocess.run(
        ["bash", str(script), "recipes/llama-3.1-8b.yaml", "--objective", "dft"],
        env={**slurm, **asked, "HERE": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    srun, command, *rest = done.stdout.splitlines()
    assert srun == "srun --kill-on-bad-exit=1 --cpus-per-task=32"
    launch, train = command.split(" -m trimsft train ")
    options = vars(launch_command_parser().parse_args([*launch.split()[1:], "-m", "trimsft"]))
    assert (options["num_machines"], options["num_processes"]) == (2, 8)
    assert (options["machine_rank"], options["main_process_ip"]) == (1, "one")
    assert train.split() == ["--config", "recipes/llama-3.1-8b.yaml", "--objective", "dft"]
    assert rest[:2] == ["scancel --signal=TERM 7", "saved within 240 s"] and rest[-1] == "scontrol requeue 7"
    seconds = re.search(r"^#SBATCH --signal=B:USR1@(\d+)$", script.read_text(), re.MULTILINE)
    assert seconds is not None and int(seconds[1]) > 240  # what the launcher waits must fit in


@pytest.mark.parametrize("name", MODELS)
def test_memory_in_the_tables_is_that_of_the_plan(name) -> None:
    row = next(line for line in README.splitlines() if f"]({name})" in line)
    parameters, *written = [cell.strip() for cell in row.strip("|").split("|")][2:]
    shape = shape_of(config_of(MODELS[name]))
    assert parameters == f"{shape.parameters / 1e9:.2f} B"
    plans = [
        Training(shape=shape, length=2048, gpus=gpus, sharded=gpus > 1, rows=rows, accumulates=gpus < 8)
        for gpus, rows in ((1, 4), (2, 4), (4, 3), (8, 3))
    ]
    plans.append(replace(plans[1], dtype_bytes=2, mixed=False))
    assert written == [f"{peak_gib(plan):.0f}" for plan in plans]
    (studies,) = re.findall(rf"^\| {re.escape(row.split('|')[1].strip())} \| .* B \|.*$", STUDIES, re.MULTILINE)
    whole, half = written[1], written[4]
    state = [f"{shape.parameters * size / 2 / 2**30:.1f}" for size in (16, 8)]
    fits = ["yes" if int(peak) <= 0.9 * 48e9 / 2**30 else "no" for peak in (whole, half)]
    cells = [parameters, state[0], whole, fits[0], state[1], half, fits[1]]
    assert [cell.strip() for cell in studies.strip("|").split("|")][1:] == cells
