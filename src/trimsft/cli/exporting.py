"""`trimsft export`."""

import json

import typer

from trimsft.cli.base import JsonFlag
from trimsft.cli.declared import command_of
from trimsft.export import ExportSettings


@command_of(ExportSettings)
def export(settings: ExportSettings, *, as_json: JsonFlag = False) -> None:
    """Write a trained model as one folder for other programs.

    For vLLM, llama.cpp and whatever loads a folder of the hub.

    Merges LoRA adapters into their base, in float32, and stores all weights as safetensors in one dtype, beside the
    configuration, the tokenizer and its chat template. The folder loads in plain transformers.

    \b
    Examples:
      trimsft export runs/auto-trim --out model
      trimsft export runs/lora --out model --dtype bfloat16
      trimsft export ./adapter --out model --json
    """
    from trimsft.export import export as export_folder

    exported = export_folder(settings)
    if as_json:
        typer.echo(json.dumps(exported.as_dict()))
        return
    merged = ", the adapter merged into its base" if exported.is_merged else ""
    typer.echo(f"Wrote {exported.folder}: {exported.parameters:,} parameters in {exported.dtype}{merged}")
    typer.echo(f"  vllm serve {exported.folder}")
    typer.echo(f"  python convert_hf_to_gguf.py {exported.folder}    # of llama.cpp")
