"""`TrimSFTTrainer`: TRL's `SFTTrainer` with any objective and the fused head.

Data preparation, packing, PEFT, evaluation, distribution and logging are TRL's. This class replaces the loss
(`compute_loss`).
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import DynamoBackend, TorchDynamoPlugin, parse_flag_from_env
from accelerate.utils.other import is_repeated_blocks
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from safetensors import SafetensorError
from torch import nn
from transformers import PrinterCallback, ProgressCallback
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.logging import disable_progress_bar
from trl.trainer.utils import create_model_from_path, get_config_model_id

from trimsft.data.encode import TOKEN_WEIGHTS, LengthReport, measure_lengths
from trimsft.data.templates import Keep
from trimsft.errors import DataError, UsageError
from trimsft.head import IGNORED
from trimsft.models import load_config, not_loaded, omits_soft_cap, require_all_tensors, require_finite
from trimsft.objectives import Objective, make_objective, needs_of
from trimsft.tables import to_markdown
from trimsft.train import batches
from trimsft.train.batches import TOKEN_COLUMNS, PackedTexts
from trimsft.train.checkpoints import AtomicCheckpoints, by_main, keep_workers
from trimsft.train.config import TrimSFTConfig
from trimsft.train.patching import patch, unpatch
from trimsft.train.telemetry import Telemetry, first_and_last

logger = logging.getLogger("trimsft")


class TrimSFTTrainer(AtomicCheckpoints):
    """`SFTTrainer` whose loss is sum_t sg(w_t) * nll_t / (trained tokens of the global batch).

        TrimSFTTrainer(model, args=TrimSFTConfig(objective="trim", margin=1.5), train_dataset=dataset).train()

    Args:
        model: a name of the hub, a folder, a causal language model, or a PEFT model of one.
        args: the settings; by default those of `TrimSFTConfig`; those of its parents are taken over.
        train_dataset: rows of text, of prompt and completion, of messages, or tokenised ones, as in TRL; or of problem
            and solution, of alpaca or sharegpt (`trimsft.data.formats`), rendered as `trimsft train` does by default.
        eval_dataset: held-out rows, or several sets of them by name.
        compute_metrics: metrics of an evaluation; their logits cost a second forward pass.
        objective: overrides the one that `args` names; a name, or any function from `TokenStats` to weights.
        others: the arguments of `SFTTrainer`, such as callbacks, optimizers and peft_config.

    Attributes:
        objective: weighs the tokens, within `train` and `evaluate`; then the model is again what the user gave.
        length_reports: what truncation costs, by dataset.
    """

    _tag_names = ["trl", "sft", "trimsft"]  # noqa: RUF012
    _name = "TrimSFT"

    def __init__(
        self,
        model: Any,
        args: TrimSFTConfig | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        compute_loss_func: None = None,
        compute_metrics: Callable[..., dict[str, Any]] | None = None,
        *,
        quantization_config: Any = None,
        formatting_func: Callable[[dict[str, Any]], str] | None = None,
        objective: Objective | str | None = None,
        **others: Any,
    ) -> None:
        args = as_config(model, args)
        if compute_loss_func is not None or args.label_smoothing_factor:
            field = "label_smoothing_factor" if compute_loss_func is None else "compute_loss_func"
            raise UsageError("would replace the objective", field=field, hint="use trl.SFTTrainer for it")
        chosen = args.make_objective() if objective is None else objective
        self.objective: Objective = make_objective(chosen) if isinstance(chosen, str) else chosen
        if formatting_func is None:
            train_dataset = batches.known(train_dataset, args, "train")
            eval_dataset = batches.known(eval_dataset, args, "eval")
        init_kwargs = args.model_init_kwargs
        if isinstance(model, str):
            model = load_base(model, args, quantization_config)
            quantization_config, args.model_init_kwargs = None, None
        unpatch(patch(model, self.objective))  # TRL would stumble over one that cannot be
        self.length_reports: dict[str, LengthReport] = {}
        self.layer_compiler, self.packed_texts = LayerCompiler(), PackedTexts(self)
        self._is_fused, self._needs_roles = False, "role" in needs_of(self.objective)
        try:
            super().__init__(
                model, args, data_collator, train_dataset, eval_dataset, processing_class, None, compute_metrics,
                quantization_config=quantization_config, formatting_func=formatting_func, **others,
            )  # fmt: skip
        finally:
            args.model_init_kwargs = init_kwargs
        parallelism = self.accelerator.parallelism_config
        if parallelism is not None and parallelism.sp_backend == "deepspeed" and parallelism.sp_enabled:
            problem = "sequence parallelism (Ulysses/ALST) is not supported: it reduces the model's own unweighted loss"
            raise UsageError(problem, field="parallelism_config", hint="set its sp_size to 1")
        if not self.aux_loss_enabled:
            # the host would wait for every backward pass; the head refuses such losses
            args.logging_nan_inf_filter = False
        self.looks_left = batches.looks_left(self)
        self.data_collator = self.packed_texts.collator(self.data_collator)  # type: ignore[has-type]
        # the loss below divides by the tokens of the global batch in any case
        self.model_accepts_loss_kwargs = True
        margin, bandwidth = (getattr(self.objective, name, getattr(args, name)) for name in ("margin", "bandwidth"))
        ends = getattr(self.model.generation_config, "eos_token_id", None)
        ends = {*(ends if isinstance(ends, list | tuple) else [ends]), self._tokenizer.eos_token_id} - {None}
        self.telemetry = Telemetry(self, (margin, bandwidth), tuple(ends))
        for callback in (ProgressCallback, PrinterCallback):  # the telemetry prints in their place
            self.remove_callback(callback)
        self.add_callback(self.telemetry)

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        return self.layer_compiler.take_settings(super()._build_accelerator_args(**kwargs))

    # ---- the data

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, packing: bool, formatting_func: Any, dataset_name: str
    ) -> Any:
        """Tokenise at full length first, so that what truncation will cost can be reported."""
        if formatting_func is None:
            dataset = batches.tokenised(dataset, self._tokenizer, args, dataset_name, with_roles=self._needs_roles)
        if not isinstance(dataset, Dataset):
            if TOKEN_WEIGHTS in (getattr(dataset, "column_names", None) or ()):
                return batches.cut_with_weights(dataset, args, packing)
            return super()._prepare_dataset(dataset, processing_class, args, packing, formatting_func, dataset_name)
        whole = copy.copy(args)
        whole.max_length, whole.shuffle_dataset = None, False
        dataset = super()._prepare_dataset(dataset, processing_class, whole, False, formatting_func, dataset_name)
        splits = packing and args.packing_strategy != "bfd"  # then nothing is cut off
        keep: Keep = "start" if args.truncation_mode == "keep_start" else "end"
        report = measure_lengths(dataset, None if splits else args.max_length, keep=keep)
        self.length_reports[dataset_name] = report
        if args.process_index == 0:
            level = logging.WARNING if report.truncated or report.dropped else logging.INFO
            logger.log(level, "%s data: %s", dataset_name, report)
        if TOKEN_WEIGHTS in dataset.column_names:
            dataset = batches.cut_with_weights(dataset, args, packing)
        else:
            dataset = super()._prepare_dataset(dataset, processing_class, args, packing, None, dataset_name)
        if len(dataset) == 0:
            rows = f"{report.rows:,} rows of the {dataset_name} data"
            raise DataError(f"{args.max_length} leaves no trained token in any of {rows}", field="max_length")
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns += [name for name in TOKEN_COLUMNS if name not in self._signature_columns]

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        return keep_workers(super()._get_dataloader(*args, **kwargs))

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate as TRL does, but with no labels in rows that another process has, too."""
        state, rank = self.accelerator.gradient_state, self.accelerator.process_index // self.get_tp_size()
        is_last = self.accelerator.num_processes > 1 and state.end_of_dataloader
        if is_last and state.remainder > 0 and "labels" in inputs:
            # accelerate fills these up with rows from the beginning; by rank, `remainder` rows are new
            labels, lengths = inputs["labels"].clone(), inputs.get(batches.ROW_LENGTHS)
            new = max(state.remainder - len(labels if lengths is None else lengths) * rank, 0)
            if lengths is None:
                labels[new:] = IGNORED
            else:
                labels[:, int(lengths[:new].sum()) :] = IGNORED
            inputs = {**inputs, "labels": labels}
        return super().prediction_step(model, inputs, *args, **kwargs)

    # ---- the loss

    @contextmanager
    def _fused(self) -> Iterator[None]:
        """Within, the model is patched and compiled; then it is again what the user gave."""
        if self._is_fused:
            yield
            return
        model, self._is_fused = self.model, True
        patch(model, self.objective, skip_below=self.args.skip_below, low_memory=self.args.low_memory, entropy=True)
        compiled = self.layer_compiler.compiled(model, accumulates=self.args.gradient_accumulation_steps > 1)
        try:
            with compiled, batches.without_cudnn_attention():
                yield
        finally:
            unpatch(model)
            self._is_fused = False

    def train(self, *args: Any, **kwargs: Any) -> Any:
        disable_progress_bar()  # of files that are saved, between the lines of steps
        with self._fused():
            return super().train(*args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return sum_t sg(w_t) * nll_t / (trained tokens of the global batch), and a router's loss."""
        inputs.pop(batches.ROW_LENGTHS, None)
        inputs["use_cache"] = False
        if self.aux_loss_enabled:
            inputs["output_router_logits"] = True
        given, context = batches.with_mask_if_needed(inputs, self)
        try:
            with self._fused():
                self.packed_texts.check(model, inputs)
                with context:
                    outputs = model(**given, num_items_in_batch=num_items_in_batch)
        except FloatingPointError as error:
            where = f"step {self.state.global_step + 1}, rank {self.args.process_index}"
            raise FloatingPointError(f"{where}: {error}") from error
        loss = outputs.token_loss
        # gradients are averaged over ranks, num_items_in_batch counts the tokens of all of them
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        if outputs.aux_loss is not None:
            # of each micro-batch: averaged over accumulation here, over ranks by the gradients
            mode = "train" if self.model.training else "eval"
            gathered = self.accelerator.gather_for_metrics(outputs.aux_loss.detach())
            self._metrics[mode]["aux_loss"].append(gathered.mean().item())
            steps = 1 if num_items_in_batch is None else self.current_gradient_accumulation_steps
            loss = loss + outputs.aux_loss * (self.router_aux_loss_coef / steps)
        self.telemetry.observe(outputs, inputs)
        if not return_outputs:
            return loss
        given = {name: value for name, value in inputs.items() if name not in ("labels", *TOKEN_COLUMNS)}
        with torch.no_grad():  # compute_metrics wants logits, which the fused head never makes
            return loss, model(**given)

    # ---- evaluation, logs, and what is saved

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        with self.telemetry.evaluation(metric_key_prefix), self._fused():
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(self, test_dataset: Any, ignore_keys: Any = None, metric_key_prefix: str = "test") -> Any:
        with self.telemetry.evaluation(metric_key_prefix), self._fused():
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        self.telemetry.add_figures(logs)
        super().log(logs, start_time)

    def create_model_card(self, model_name: Any = None, dataset_name: Any = None, tags: Any = None) -> None:
        if self.is_world_process_zero():
            model_card(self, model_name, dataset_name, tags).save(f"{self.args.output_dir}/README.md")


# ---- torch_compile


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the outermost layers: what transformers can checkpoint, or members of a list of one class."""
    layers: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, GradientCheckpointingLayer):
            layers.append(child)
        else:
            layers += child.children() if is_repeated_blocks(child) else layers_of(child)
    return layers


class LayerCompiler:
    """Compiles the layers in place where `torch_compile` or `accelerate launch` would have the whole model compiled.

    accelerate's own regional compilation trains a copy of the model, and the fused head sits in the user's.
    """

    settings: dict[str, Any] | None = None

    def take_settings(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return an accelerator's arguments without those that would compile the model."""
        plugin = arguments["dynamo_plugin"]
        deepspeed = arguments["deepspeed_plugin"] is not None or parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")
        if plugin.backend == DynamoBackend.NO or plugin.disable or deepspeed:
            return arguments
        self.settings = plugin.to_kwargs()
        return {**arguments, "dynamo_plugin": TorchDynamoPlugin(backend="no")}

    @contextmanager
    def compiled(self, model: Any, *, accumulates: bool) -> Iterator[None]:
        """Within, the layers are compiled; then the model is again what the user gave."""
        settings = self.settings
        if settings is None:
            yield
            return
        layers = [layer for layer in layers_of(model) if layer._compiled_call_impl is None]
        for layer in layers:
            layer.compile(**settings)
        options, mode = settings.get("options") or {}, settings.get("mode")
        makes_graphs = mode in ("reduce-overhead", "max-autotune") or settings.get("backend") == "cudagraphs"
        hooks = _keep_gradients(layers) if accumulates and (makes_graphs or options.get("triton.cudagraphs")) else []
        try:
            yield
        finally:
            for layer in layers:
                layer._compiled_call_impl = None
            for hook in hooks:
                hook.remove()


def _keep_gradients(layers: list[nn.Module]) -> list[Any]:
    """Have gradients outlast the graph that made them, whose memory is written over."""

    def keep(parameter: nn.Parameter) -> None:
        if parameter.grad is not None and not hasattr(parameter.grad, "outlasts"):
            parameter.grad = parameter.grad.clone()
            parameter.grad.outlasts = True  # type: ignore[attr-defined]

    parameters = [one for layer in layers for one in layer.parameters() if one.requires_grad]
    return [parameter.register_post_accumulate_grad_hook(keep) for parameter in parameters]


# ---- the model


def load_base(name: str, args: TrimSFTConfig, quantization_config: Any = None) -> Any:
    """Load a model by `args.model_init_kwargs`; refuse one that is not whole."""
    given, field = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}, "model_name_or_path"
    load_config(name, revision=given.get("revision"), trust_remote_code=given["trust_remote_code"], field=field)
    if quantization_config is not None:
        given["quantization_config"] = quantization_config
    if args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        given["device_map"] = None
    try:
        model, report = create_model_from_path(name, output_loading_info=True, **given)
    except (SafetensorError, AttributeError) as error:  # an unknown architecture
        raise not_loaded(repr(name), name, error, field=field) from error

    def require_whole() -> None:
        require_all_tensors(report, name, field=field)  # or they are random numbers
        require_finite(model, name, field=field)

    by_main(require_whole)  # elsewhere FSDP may have left the weights to this one
    if omits_soft_cap(model):
        logger.warning("attention caps its scores in this model, which sdpa leaves out: it is eager")
        model.set_attn_implementation("eager")
    return model


def as_config(model: Any, args: Any) -> TrimSFTConfig:
    """Return the settings as TRL does: defaults for none, a parent's taken over."""
    if args is None:
        name = model if isinstance(model, str) else get_config_model_id(model.config)
        return TrimSFTConfig(f"{name.split('/')[-1]}-TrimSFT")
    if isinstance(args, TrimSFTConfig):
        return args
    settings = args.to_dict()
    # to_dict masks tokens, eos_token too
    settings |= {name: getattr(args, name) for name in settings if name.endswith("_token")}
    if settings["metric_for_best_model"] == "loss":  # its default
        settings["metric_for_best_model"] = None
    config = TrimSFTConfig(**settings)
    logger.warning("objective: %r, the default, which %s does not name", config.objective, type(args).__name__)
    return config


# ---- the model card

CARD_SETTINGS = ("learning_rate", "num_train_epochs", "max_steps", "max_length", "packing", "seed")


def model_card(trainer: Any, model_name: str | None, dataset_name: str | None, tags: Any = None) -> ModelCard:
    """Return what the model was made from, settings, and figures of its first and last log."""
    # a folder or file of this machine is named without its path
    base, data = (
        os.path.basename(name) if os.path.exists(name) else name
        for name in (get_config_model_id(trainer.model.config) or "", dataset_name or "")
    )
    is_adapter = hasattr(trainer.model, "peft_config")
    header = ModelCardData(
        base_model=base if "/" in base else None,
        datasets=[data] if "/" in data else None,
        library_name="peft" if is_adapter else "transformers",
        tags=sorted({*trainer._tag_names, *([tags] if isinstance(tags, str) else tags or [])}),
    )
    objective = getattr(trainer.objective, "__name__", trainer.objective)
    paragraphs = [
        f"---\n{header.to_yaml()}\n---",
        f"# {model_name or 'model'}",
        f"{'An adapter for' if is_adapter else 'Fine-tuned from'} `{base}` with the objective `{objective}`.",
        *([f"Data: `{data}`."] if data else []),
        *(f"{name}: {report}" for name, report in trainer.length_reports.items()),
        ", ".join(f"{name} {getattr(trainer.args, name)}" for name in CARD_SETTINGS),
        to_markdown(first_and_last(trainer.state.log_history)),
    ]
    return ModelCard("\n\n".join(paragraphs))
