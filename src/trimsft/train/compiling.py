"""`torch_compile`: each decoder layer is compiled in place; the head, which has kernels of its own, is left as it is.

Layers of one kind share what is compiled, and parameters keep their names. `torch_compile_mode="reduce-overhead"` makes
CUDA graphs of them, which pays where micro-batches are so small that the host is slower than the device. accelerate's
own regional compilation trains a copy of the model, and our head, which sits in the user's model, would run that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import DynamoBackend, TorchDynamoPlugin, parse_flag_from_env
from accelerate.utils.other import is_repeated_blocks
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from trimsft.errors import UsageError


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the decoder layers: what transformers can checkpoint, or members of a list of one class; outermost."""
    layers: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, GradientCheckpointingLayer):
            layers.append(child)
        else:
            layers += child.children() if is_repeated_blocks(child) else layers_of(child)
    return layers


class LayerCompiler:
    """Compiles the layers where `torch_compile` or `accelerate launch` would have the whole model compiled.

    DeepSpeed, which has an engine around the model, is left to accelerate.
    """

    settings: dict[str, Any] | None = None

    def take_settings(self, arguments: dict[str, Any], model: Any) -> dict[str, Any]:
        """Return the arguments of an accelerator without those that would compile the model, which are kept here."""
        plugin = arguments["dynamo_plugin"]
        deepspeed = arguments["deepspeed_plugin"] is not None or parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")
        if plugin.backend == DynamoBackend.NO or plugin.disable or deepspeed:
            return arguments
        if not layers_of(model):
            problem = f"{type(model).__name__} has no layers that could be compiled"
            raise UsageError(problem, field="torch_compile", value=True, hint="turn it off")
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
    """Have gradients outlast the graph that made them, whose memory the next micro-batch writes over."""

    def keep(parameter: nn.Parameter) -> None:
        if parameter.grad is not None and not hasattr(parameter.grad, "outlasts"):
            parameter.grad = parameter.grad.clone()
            parameter.grad.outlasts = True  # type: ignore[attr-defined]

    parameters = [one for layer in layers for one in layer.parameters() if one.requires_grad]
    return [parameter.register_post_accumulate_grad_hook(keep) for parameter in parameters]
