"""`patch(model, objective)`: any transformers causal LM computes the weighted loss itself.

The model's own forward runs, with its output embedding replaced by the fused head for the length of that call. So
router losses, scaling and hooks of FSDP and ZeRO still happen, and nothing of a model is written a second time here.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from transformers.trainer_callback import TrainerCallback
from transformers.utils import ModelOutput

from trimsft.errors import UnsuitedHead, UsageError, WrongArgument
from trimsft.head import IGNORED, LossOutput, linear_cross_entropy, lm_head
from trimsft.head.loss import TrainedRows
from trimsft.objectives import Objective, TokenStats, make_objective, needs_of

if TYPE_CHECKING:
    from trimsft.head.loss import Backend

Model = TypeVar("Model", bound=nn.Module)
_HARM = "the fused loss would be wrong. Use trimsft.linear_cross_entropy with the right logit_scale and softcap."


@dataclass(kw_only=True)
class FusedHead:
    """Settings of a patched model, `model.trimsft_head`; free to change between steps."""

    objective: Objective
    skip_below: float | None = None  # see `linear_cross_entropy`
    low_memory: bool | None = None
    backend: Backend = "auto"
    entropy: bool = False  # whether `tokens.entropy` is filled in
    logit_scale: float = 1.0
    softcap: float | None = None
    checked: bool = False  # whether a first batch agreed with the model's own head
    in_graph: bool = False  # whether a gradient has come back through its loss

    def note_gradient(self, gradient: Tensor) -> None:
        self.in_graph = True


@dataclass
class TrimOutput(ModelOutput):  # type: ignore[misc]
    """Returned by a patched model that is given labels; there are no logits."""

    # always filled in; ModelOutput wants defaults
    loss: Tensor = None  # type: ignore[assignment]
    """token_loss, and what the model's configuration adds to it (router losses)."""
    token_loss: Tensor = None  # type: ignore[assignment]
    """sum_t sg(w_t) * nll_t / (num_items_in_batch, or the number of trained tokens)."""
    aux_loss: Tensor | None = None
    tokens: TokenStats = None  # type: ignore[assignment]
    """Statistics of the trained tokens, in order; likewise the next two."""
    weights: Tensor = None  # type: ignore[assignment]
    labels: Tensor = None  # type: ignore[assignment]
    kept: int = None  # type: ignore[assignment]
    """How many of them took part in the head's backward pass."""
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    logits: None = None
    """Always: trainers that log a token accuracy of their own look whether there are any."""


def patch(
    model: Model,
    objective: Objective | str,
    *,
    skip_below: float | None = None,
    low_memory: bool | None = None,
    backend: Backend = "auto",
    entropy: bool = False,
) -> Model:
    """Make `model(..., labels=labels).loss` the weighted loss of `objective`; returns the same model.

    Without labels the model is what it was. With labels it returns a `TrimOutput`: the loss and the statistics of each
    trained token, but no logits. `num_items_in_batch` and `shift_labels` are understood as transformers' own losses do;
    `token_weights`, of the labels' shape, multiply the weights of the objective; `token_roles` are for one that needs
    them. Patching again replaces the settings.

        model = trimsft.patch(AutoModelForCausalLM.from_pretrained(name), trimsft.TrimSFT(margin=1.5))  # or "auto-trim"
        model(input_ids, labels=labels).loss.backward()
    """
    base = inside_peft(model)
    if not hasattr(base, "get_output_embeddings") or not hasattr(base, "config"):
        raise WrongArgument(f"must be a transformers model, got {type(model).__name__}", field="model")
    name, head = type(base).__name__, base.get_output_embeddings()
    if head is None:
        raise WrongArgument(f"{name} has no output embedding (lm_head); is it a causal LM?", field="model")
    if base.config.is_encoder_decoder or name.endswith("ForMaskedLM"):
        raise WrongArgument(f"{name} is no causal language model; only those can be patched", field="model")
    _refuse_adapter(head)
    scale, softcap = lm_head.logit_transform(base)
    base.trimsft_head = FusedHead(
        objective=make_objective(objective) if isinstance(objective, str) else objective,
        skip_below=skip_below,
        low_memory=low_memory,
        backend=backend,
        entropy=entropy,
        logit_scale=scale,
        softcap=softcap,
    )
    _put_before(base, _fused_forward)
    return model


def unpatch(model: Model) -> Model:
    """Undo `patch`, if the model is patched; returns the same model."""
    base = inside_peft(model)
    head = _uncompiled(base.get_output_embeddings())
    base.__dict__.pop("trimsft_head", None)
    _take_off(base)
    if head is not None and _take_off(head):
        del head.trimsft_call
        for key in [key for key, hook in head._forward_hooks.items() if hook is _remember_output]:
            del head._forward_hooks[key]
    return model


class TrimCallback(TrainerCallback):  # type: ignore[misc]
    """Patches the model for a training by `transformers.Trainer`, and unpatches it at the end.

        Trainer(model, arguments, train_dataset=rows, callbacks=[TrimCallback(AutoTrim())])

    A trainer that computes another loss, for instance from logits, would train without the objective and say nothing:
    so the first update is refused if no gradient has come back through the weighted loss.

    Args:
        objective: the weight of each token, or its name.
        settings: keywords of `trimsft.patch`, such as skip_below=0.
    """

    def __init__(self, objective: Objective | str, **settings: Any) -> None:
        self._objective = objective
        self._settings = settings
        self._is_checked = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        patch(getattr(model, "module", model), self._objective, **self._settings)  # inside DistributedDataParallel
        self._is_checked = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self._is_checked:
            return
        head = getattr(inside_peft(getattr(model, "module", model)), "trimsft_head", None)
        if head is None or not head.in_graph:
            problem = "the trainer computes a loss of its own: no gradient came back through the weighted one"
            hint = "turn off its other losses (DFT, label smoothing, loss scales, fused or chunked cross-entropy)"
            raise UnsuitedHead(problem, field="objective", value=self._objective, hint=hint)
        self._is_checked = True

    on_step_end = on_pre_optimizer_step  # for trainers that leave the other out

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        unpatch(getattr(model, "module", model))


def _put_before(module: nn.Module, handle: Callable[..., Any]) -> None:
    """Let `handle` take the module's calls, unless it does so already."""
    if "trimsft_previous" in module.__dict__:
        return

    @functools.wraps(type(module).forward)  # `generate` and Trainer read the signature
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handle(self, *args, **kwargs)

    # accelerate would follow it back to the class's own forward, and so take the patch off
    forward.__signature__ = inspect.signature(type(module).forward)  # type: ignore[attr-defined]
    del forward.__wrapped__
    module.__dict__["trimsft_previous"] = module.__dict__.get("forward")
    # a bound method on the instance: a deep copy of the module gets its own
    module.forward = module.__dict__["trimsft_forward"] = types.MethodType(forward, module)


def _take_off(module: nn.Module) -> bool:
    """Undo `_put_before`; return False if it was not there, or has to stay below another."""
    own = module.__dict__.get("trimsft_forward")
    if own is None or module.__dict__.get("forward") != own:
        return False
    previous = module.__dict__.pop("trimsft_previous")
    del module.__dict__["forward"], module.__dict__["trimsft_forward"]
    if previous is not None:
        module.__dict__["forward"] = previous
    return True


def _previous(module: Any) -> Callable[..., Any]:
    return module.trimsft_previous or functools.partial(type(module).forward, module)


@functools.partial(_disable_dynamo, recursive=False)  # the layers below may be compiled
def _fused_forward(
    self: Any,
    *args: Any,
    labels: Tensor | None = None,
    shift_labels: Tensor | None = None,
    num_items_in_batch: Tensor | int | None = None,
    token_weights: Tensor | None = None,
    token_roles: Tensor | None = None,
    **kwargs: Any,
) -> Any:
    original = _previous(self)
    settings: FusedHead | None = getattr(self, "trimsft_head", None)
    if len(args) > 5 and settings is not None:  # the sixth or a later one is called labels
        problem = "a patched model takes five arguments by position at most, and labels by name"
        raise WrongArgument(problem, field="labels")
    about_loss = {"labels": labels, "shift_labels": shift_labels, "num_items_in_batch": num_items_in_batch}
    # TRL's own fused head, below this one, is asked for by name
    if settings is None or (labels is None and shift_labels is None) or kwargs.get("fused_lm_head"):
        return original(*args, **kwargs, **{name: value for name, value in about_loss.items() if value is not None})
    if shift_labels is None:
        shift_labels, token_weights, token_roles = shifted(labels), shifted(token_weights, 0), shifted(token_roles, 0)
    assert shift_labels is not None
    if token_weights is not None:
        shift_labels = shift_labels.masked_fill(token_weights == 0, IGNORED)
    head, name = _uncompiled(self.get_output_embeddings()), type(self).__name__
    facts = _facts(needs_of(settings.objective), shift_labels, kwargs.get("position_ids"), token_roles)
    call = _Call(settings, shift_labels, num_items_in_batch, token_weights, facts, _start_counting(head, shift_labels))
    if not hasattr(head, "trimsft_call"):
        _refuse_adapter(head)
        _put_before(head, _head_forward)  # its hooks fire: FSDP and ZeRO gather there
        head.register_forward_hook(_remember_output)  # after DeepSpeed's
    head.trimsft_call = call
    try:
        outputs = original(*args, **{**kwargs, "use_cache": False, "return_dict": True})
    finally:
        head.trimsft_call = None
    if len(call.results) != 1:
        problem = f"{name} called its output embedding {len(call.results)} times in one forward pass, and not once"
        raise UnsuitedHead(problem, hint="use trimsft.linear_cross_entropy in a loop of your own")
    if not settings.checked:
        lm_head.check_transform(outputs.logits[..., 1:], settings.logit_scale, settings.softcap, name, harm=_HARM)
        settings.checked = True
    result, loss, aux_loss = call.results[0], call.placeholder[0, 0, 0].clone(), getattr(outputs, "aux_loss", None)
    if loss.requires_grad and not settings.in_graph:
        loss.register_hook(settings.note_gradient)
    of_tokens = {name: getattr(result, name) for name in ("tokens", "weights", "labels", "kept")}
    of_model: dict[str, Any] = {name: getattr(outputs, name, None) for name in ("hidden_states", "attentions")}
    output = TrimOutput(loss=loss, token_loss=loss, aux_loss=aux_loss, **of_tokens, **of_model)
    if aux_loss is not None:
        coefficient = getattr(self.config.get_text_config(), "router_aux_loss_coef", 0.0)
        output.loss = loss + coefficient * aux_loss.to(loss.device)
    return output.to_tuple() if kwargs.get("return_dict") is False else output


def _facts(
    needs: frozenset[str], labels: Tensor, position_ids: Tensor | None, roles: Tensor | None
) -> dict[str, Tensor]:
    """Return what an objective needs beside statistics, of the shape of shifted labels."""
    if position_ids is None or position_ids.shape[-2:] != labels.shape:
        position_ids = torch.arange(labels.shape[-1], device=labels.device).expand(labels.shape)
    position_ids = position_ids.reshape(-1, *labels.shape)[0]  # of images there are three
    rows = (position_ids == 0).flatten().cumsum(0).view_as(labels) - 1  # packed texts begin at 0 each
    facts = {"position": position_ids + 1, "row": rows, "role": roles}  # of the token that is predicted
    return {name: values for name, values in facts.items() if name in needs and values is not None}


@_disable_dynamo
def _start_counting(head: Any, labels: Tensor) -> TrainedRows | None:
    """Count trained labels while the layers work; not if the head is elsewhere."""
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or len(weight) < 2 or weight.device != labels.device:
        return None
    return TrainedRows(labels, len(weight))


def _uncompiled(module: Any) -> Any:
    """Return the module itself, where `torch.compile` has wrapped it."""
    return getattr(module, "_orig_mod", module)


@dataclass(eq=False)
class _Call:
    """One use of the fused head in place of a model's own."""

    settings: FusedHead
    labels: Tensor
    normalizer: Tensor | float | None
    token_weights: Tensor | None
    facts: dict[str, Tensor]
    trained: TrainedRows | None
    results: list[LossOutput] = field(default_factory=list)
    placeholder: Tensor = field(default_factory=lambda: torch.empty(0))  # after hooks


@_disable_dynamo
def _remember_output(head: Any, _: Any, output: Tensor) -> None:
    if head.trimsft_call is not None:
        head.trimsft_call.placeholder = output


@_disable_dynamo
def _head_forward(self: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Stand in for the forward of an output embedding: its own, unless a loss is wanted."""
    call: _Call | None = self.trimsft_call
    if call is None:
        return _previous(self)(hidden, *args, **kwargs)  # type: ignore[no-any-return]
    if hidden.shape[:-1] != call.labels.shape:
        problem = f"shape {tuple(call.labels.shape)} does not go with hidden states of {tuple(hidden.shape)}"
        raise UsageError(problem, field="labels")
    settings, (weight, bias) = call.settings, lm_head.whole_weight(self)
    if not settings.checked and not (lm_head.is_plain(self) and self.trimsft_previous is None):
        lm_head.check_product(self, _previous(self), hidden, harm=_HARM)
    device = weight.device  # `device_map` may have put the head elsewhere
    result = linear_cross_entropy(
        hidden.to(device),
        weight,
        call.labels.to(device),
        bias=bias,
        token_weights=None if call.token_weights is None else call.token_weights.to(device),
        facts={name: values.to(device) for name, values in call.facts.items()},
        ignore_index=IGNORED,
        normalizer=call.normalizer,
        trained=call.trained,
        **{name: value for name, value in vars(settings).items() if name not in ("checked", "in_graph")},
    )
    call.results.append(result)
    # the loss, so that hooks on the output are on its way back, and once the probe
    probe = result.loss.new_tensor(() if settings.checked else lm_head.PROBE)
    # made by cat, whatever its length: of a view FSDP warns
    return torch.cat((result.loss.reshape(1, 1, 1), probe.reshape(1, 1, -1)), dim=-1)


def shifted(labels: Tensor | None, fill: int = IGNORED) -> Tensor | None:
    """Return the label each position predicts, one to the left. The one place that shifts."""
    return None if labels is None else torch.nn.functional.pad(labels[..., 1:], (0, 1), value=fill)


def inside_peft(model: Any) -> Any:
    """Return the model itself, where PEFT has wrapped it."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def _refuse_adapter(head: nn.Module) -> None:
    if lm_head.has_adapter(head):  # which the fused head would not train
        problem, hint = "a PEFT adapter on lm_head is not supported", "remove 'lm_head' from target_modules"
        raise UsageError(problem, field="target_modules", hint=hint)
