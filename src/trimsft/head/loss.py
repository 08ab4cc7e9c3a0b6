"""`linear_cross_entropy`: the one public function in front of the three backends.

It checks what it is given and says what the loss is divided by. `TrainedRows` says which labels are ignored; the
backends see trained tokens only.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from trimsft.errors import UsageError
from trimsft.head import chunked, reference
from trimsft.head.problem import (
    IGNORED,
    BackendUnavailable,
    Problem,
    Solution,
    auto_backend,
    copy_to_host,
    has_triton,
    skip_below_of,
)
from trimsft.objectives import Objective, TokenStats, WeighsTokens, is_finite_number, needs_of

Backend = Literal["auto", "reference", "chunked", "triton"]
BACKENDS: tuple[str, ...] = get_args(Backend)


@dataclass(frozen=True)
class LossOutput:
    """Loss and statistics that `linear_cross_entropy` returns."""

    loss: Tensor  # scalar, differentiable in hidden, weight and bias: sum_t sg(w_t) * nll_t / normalizer
    tokens: TokenStats  # statistics of the labels that are not ignored, in order
    weights: Tensor  # w_t of the same tokens; float32
    labels: Tensor  # their labels; int64
    kept: int  # tokens that took part in the backward pass; the others were skipped (0 without gradients)


class TrainedRows:
    """The places of labels that are not ignored; a label outside the vocabulary is refused.

    The device begins to look when this is made. Whoever asks waits for that alone, not for work launched since: made
    before the layers of a model run, it has the answer by the time the head needs it.
    """

    def __init__(self, labels: Tensor, vocabulary: int, ignore_index: int = IGNORED) -> None:
        self.labels_N, self.vocabulary, self.ignore_index = labels.reshape(-1).long(), vocabulary, ignore_index
        self._counted: Callable[[], list[float]] | None = None
        if self.labels_N.is_cuda and has_triton():
            from trimsft.head.triton_kernels import find_trained

            labels_N, size = self.labels_N.contiguous(), len(self.labels_N)
            self._rows_N = torch.empty_like(labels_N)
            counts = torch.empty(2, dtype=torch.int32, device=labels_N.device)
            with torch.cuda.device_of(labels_N):  # Triton launches on the current device, whichever the tensors are on
                arguments = (labels_N, self._rows_N, counts, size, ignore_index, vocabulary)
                find_trained[(1,)](*arguments, BLOCK=4096, num_warps=8)
                self._counted = copy_to_host(counts)

    def rows(self) -> Tensor | None:
        """Return the indices of the labels to train on, or None for all of them."""
        labels_N, highest = self.labels_N, self.vocabulary - 1
        if self._counted is not None:
            count, bad = map(int, self._counted())
            rows = self._rows_N[:count]
        else:
            rows = (labels_N != self.ignore_index).nonzero().flatten()
            bad = int((labels_N[rows].clamp(0, highest) != labels_N[rows]).sum())
        if bad:
            outside = (labels_N != self.ignore_index) & (labels_N.clamp(0, highest) != labels_N)
            first = int(outside.nonzero()[0])
            raise UsageError(
                f"labels: {bad} of {len(rows)} are outside the vocabulary (0 to {highest}; ignore_index is "
                f"{self.ignore_index}), first {int(labels_N[first])} at position {first}"
            )
        return None if len(rows) == len(labels_N) else rows


@_disable_dynamo
def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    objective: Objective,
    *,
    bias: Tensor | None = None,
    token_weights: Tensor | None = None,
    facts: Mapping[str, Tensor] | None = None,
    ignore_index: int = IGNORED,
    normalizer: float | Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    skip_below: float | None = None,
    entropy: bool = False,
    low_memory: bool | None = None,
    backend: Backend = "auto",
    trained: TrainedRows | None = None,
) -> LossOutput:
    """Return the weighted cross-entropy of a linear head, without float32 logits of all tokens.

    Equal to these lines, to float32 rounding and to what `skip_below` leaves out::

        logits = logit_scale * (hidden @ weight.T + bias)                     # softcap * tanh(logits / softcap)
        nll = cross_entropy(logits, labels, reduction="none")
        gap = logits[gold] - max(logits without gold)
        weights = objective.weights(TokenStats(nll, gap, ...)).detach() * token_weights
        loss = (weights * nll).sum() / normalizer

    Args:
        hidden: [..., H]; `hidden[i]` predicts `labels[i]` (the caller shifts). float32, bfloat16, float16, float64.
        weight: [V, H], the lm_head, in the same dtype (autocast casts both).
        labels: [...] integers; those equal to `ignore_index` are dropped before the first matmul.
        objective: from `trimsft.objectives`, or any elementwise function `TokenStats -> weights`; it is called
            on consecutive pieces of the batch.
        bias: [V].
        token_weights: floating-point numbers of the shape of labels, which multiply the objective's weights before it
            is decided what is skipped. A label of weight 0 is ignored; weights of ignored labels are never looked at.
        facts: fields of `TokenStats` that an objective may need and the head cannot know, of the shape of labels:
            position, row, role.
        normalizer: what the sum is divided by, a number or a scalar tensor; the number of trained tokens if None.
            Under gradient accumulation or on several ranks, pass the count of the global batch.
        logit_scale: the logits are multiplied by it.
        softcap: z becomes softcap * tanh(z / softcap), after scaling.
        skip_below: rows with |w|*(1-p) below it get no backward pass, unless they are so many that they would matter
            or so few that it saves no time; 0 is exact. By default 1e-8 for objectives that trim, 0 for all others.
        entropy: fill in `tokens.entropy`; an objective that needs it has it in any case.
        low_memory: triton backend: True keeps no logit gradients and computes the logits of kept rows again, False
            keeps all of them, None as many as have room (`trimsft.head.memory`). Gradients differ by rounding alone.
        backend: "auto" is triton for CUDA tensors and chunked elsewhere.
        trained: `TrainedRows` of the same labels, made before the hidden states were computed.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:  # as torch.nn.functional.linear does
        dtype = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    _check_tensors(hidden, weight, labels, bias, token_weights)
    if trained is None:  # early: the device counts while the host checks the rest
        if token_weights is not None:
            labels = labels.masked_fill(token_weights == 0, ignore_index)
        trained = TrainedRows(labels, weight.shape[0], ignore_index)
    skip_below = skip_below_of(objective) if skip_below is None else skip_below
    # a normalizer of 0 is no matter where there is nothing to train
    divisor = normalizer if isinstance(normalizer, Tensor) else normalizer or None
    _check_settings(objective, skip_below, logit_scale=logit_scale, softcap=softcap, normalizer=divisor)
    with_rank = not needs_of(objective).isdisjoint(("rank", "gradient_norm", "collision"))
    entropy = entropy or with_rank or "entropy" in needs_of(objective)
    solve = choose_backend(backend, hidden, low_memory)

    if (len(trained.labels_N), trained.vocabulary, trained.ignore_index) != (labels.numel(), len(weight), ignore_index):
        raise ValueError("trained: was made of other labels, another vocabulary or another ignore_index")
    hidden_NH, labels_N, rows = hidden.reshape(-1, hidden.shape[-1]), trained.labels_N, trained.rows()
    count = (labels_N if rows is None else rows).shape[0]
    if count == 0:
        return _nothing_to_train(hidden_NH, weight, bias, entropy)
    if not isinstance(normalizer, Tensor) and normalizer == 0:
        raise ValueError(f"normalizer: must be a number > 0, got {normalizer!r} with {count} tokens to train on")
    weights_N = None if token_weights is None else token_weights.detach().reshape(-1).float()
    facts_N = dict(facts or {})
    if "data_weight" in needs_of(objective):
        facts_N["data_weight"] = torch.ones_like(labels, dtype=torch.float32) if weights_N is None else weights_N
    for name, values in facts_N.items():
        if values.numel() != len(labels_N):
            raise ValueError(f"facts: {name} must have the shape of labels, got {tuple(values.shape)}")
        facts_N[name] = values.reshape(-1) if rows is None else values.reshape(-1)[rows]
    problem = Problem(
        hidden_TH=hidden_NH,
        weight_VH=weight,
        bias_V=bias,
        labels_T=labels_N if rows is None else labels_N[rows],
        token_weights_T=weights_N if weights_N is None or rows is None else weights_N[rows],
        facts_T=facts_N,
        objective=objective,
        normalizer=count if normalizer is None else normalizer,
        logit_scale=float(logit_scale),
        softcap=None if softcap is None else float(softcap),
        skip_below=float(skip_below),
        with_entropy=entropy,
        with_rank=with_rank,
        low_memory=low_memory,
        wants_hidden=torch.is_grad_enabled() and hidden.requires_grad,
        wants_weight=torch.is_grad_enabled() and weight.requires_grad,
        wants_bias=torch.is_grad_enabled() and bias is not None and bias.requires_grad,
    )
    # from here on the precision of every step is chosen on purpose
    with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        if solve is None:
            problem = problem if rows is None else replace(problem, hidden_TH=hidden_NH[rows])
            loss, solution = reference.solve(problem)
            _require_finite(solution, problem)
        else:
            loss, solution = _Fused.apply(hidden_NH, weight, bias, rows, problem, solve)  # type: ignore[no-untyped-call]
    kept = solution.kept if problem.wants_gradient else 0
    return LossOutput(loss, solution.tokens, solution.weights, problem.labels_T, kept)


class _Fused(torch.autograd.Function):
    """Gradients are computed in the forward pass; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        rows: Tensor | None,
        problem: Problem,
        solve: Callable[[Problem], Solution],
    ) -> tuple[Tensor, Solution]:
        solution = solve(problem if rows is None else replace(problem, hidden_TH=hidden_NH[rows]))
        _require_finite(solution, problem)
        grad_hidden_NH = solution.grad_hidden_TH
        if grad_hidden_NH is not None and rows is not None:
            grad_hidden_NH = torch.zeros_like(hidden_NH).index_copy_(0, rows, grad_hidden_NH)
        ctx.gradients = (grad_hidden_NH, solution.grad_weight_VH, solution.grad_bias_V)
        divisor = problem.divisor
        ctx.late_divisor = divisor / problem.early_divisor if hidden_NH.dtype == torch.float16 else None
        loss = torch.dot(solution.weights, solution.tokens.nll).to(divisor.dtype) / divisor
        return loss, replace(solution, grad_hidden_TH=None, grad_weight_VH=None, grad_bias_V=None)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the loss cannot be differentiated twice (create_graph=True) but by backend='reference'")
        if ctx.gradients is None:
            raise RuntimeError("the gradients were already used; a second backward pass needs a second call")
        gradients, ctx.gradients = ctx.gradients, None
        factor = grad_loss if ctx.late_divisor is None else grad_loss / ctx.late_divisor
        for gradient in gradients:
            if gradient is not None:
                _scale_(gradient, factor)
        return (*gradients, None, None, None)


def _require_finite(solution: Solution, problem: Problem) -> None:
    """Raise if a logit of a trained token, a weight or the normalizer is no good, and say which."""
    if solution.finite:
        return
    tokens, divisor = solution.tokens, float(problem.divisor)
    if not (math.isfinite(divisor) and divisor > 0):
        raise ValueError(f"normalizer: must be a number > 0, got {divisor!r} with {len(tokens)} tokens to train on")
    finite = torch.isfinite(tokens.nll) & torch.isfinite(tokens.gap)
    if not finite.all():
        rows = (~finite).nonzero().flatten()
        places = f"{len(rows)} of {len(tokens)} trained tokens (first: token {int(rows[0])})"
        raise FloatingPointError(f"non-finite logits at {places}; look for NaN or inf in the hidden states or the head")
    if problem.token_weights_T is not None and not torch.isfinite(problem.token_weights_T).all():
        raise ValueError("token_weights: must be finite at every trained token")
    raise FloatingPointError(f"objective {problem.objective!r} returned a weight that is not finite")


def _scale_(gradient: Tensor, factor: Tensor) -> None:
    """Multiply a gradient, for free where the factor is 1, and without asking the device what it is."""
    if gradient.is_cuda and gradient.is_contiguous() and has_triton():
        from trimsft.head.triton_kernels import scale_in_place

        with torch.cuda.device_of(gradient):
            scale_in_place[(1024,)](gradient, factor, gradient.numel(), BLOCK=4096, num_warps=8)
    elif gradient.is_cuda or factor != 1:
        # in float32: as a tensor on the device the factor would be rounded to the gradient's dtype first
        for part in gradient.flatten(end_dim=-2).split(4096) if gradient.dim() > 1 else (gradient,):
            part.copy_(part.to(torch.promote_types(part.dtype, torch.float32)) * factor)


def _nothing_to_train(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, entropy: bool) -> LossOutput:
    """Return loss 0, still part of the graph, so that a rank without tokens takes part in the backward pass."""
    loss = hidden_NH[:0].sum() + weight[:0].sum() + (0 if bias is None else bias[:0].sum())
    none = torch.empty(0, device=hidden_NH.device)
    tokens = TokenStats(none, none, none, none.long(), none if entropy else None, none.long())
    return LossOutput(loss.to(torch.promote_types(loss.dtype, torch.float32)), tokens, none, none.long(), 0)


FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _check_tensors(
    hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, token_weights: Tensor | None
) -> None:
    """Refuse shapes that would broadcast, and devices that a kernel cannot read from."""
    positions, vocabulary = hidden.shape[:-1], len(weight)
    for name, tensor, shape, dtypes in (
        ("hidden", hidden, hidden.shape, FLOATS),
        ("weight", weight, (vocabulary, *hidden.shape[-1:]), (hidden.dtype,)),
        ("labels", labels, positions, INTEGERS),
        ("bias", bias, (vocabulary,), (hidden.dtype,)),
        ("token_weights", token_weights, positions, FLOATS),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape or tensor.dtype not in dtypes:
            known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            got = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise ValueError(f"{name}: must be {known} of shape {tuple(shape)}, got {got}")
        if tensor.device != hidden.device:
            raise ValueError(f"{name}: is on {tensor.device}, hidden on {hidden.device}; move them together")


def _check_settings(objective: Objective, skip_below: float, **positive: float | Tensor | None) -> None:
    if isinstance(objective, type) or not (isinstance(objective, WeighsTokens) or callable(objective)):
        raise TypeError(f"objective: must be an object such as TrimSFT() or a function, got {objective!r}")
    for name, value in positive.items():
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"{name}: must be a scalar, got shape {tuple(value.shape)}")
        elif value is not None and not (is_finite_number(value) and value > 0):
            raise ValueError(f"{name}: must be a number > 0, got {value!r}")
    if not (is_finite_number(skip_below) and skip_below >= 0):
        raise ValueError(f"skip_below: must be a number >= 0, got {skip_below!r}")


def choose_backend(name: str, hidden: Tensor, low_memory: bool | None) -> Callable[[Problem], Solution] | None:
    """Return the solver of that name; None for the reference, which autograd differentiates."""
    if name not in BACKENDS:
        raise ValueError(f"backend: unknown name {name!r}; known: {', '.join(BACKENDS)}")
    if name == "auto":
        name = auto_backend(hidden)
    elif low_memory and name != "triton":
        raise ValueError(f"low_memory: has no effect with backend={name!r}; use 'triton' or 'auto'")
    if name != "triton":
        return chunked.solve if name == "chunked" else None
    if not has_triton():
        raise BackendUnavailable("backend: 'triton' is not installed (builds of torch for CUDA have it); use 'chunked'")
    if hidden.dtype == torch.float64:
        raise BackendUnavailable("backend: 'triton' takes no float64; use 'chunked' or 'reference'")
    import triton

    from trimsft.head import triton_solver

    if not hidden.is_cuda and not triton.knobs.runtime.interpret:
        raise BackendUnavailable(
            f"backend: 'triton' needs CUDA tensors, hidden is on {hidden.device}; use 'chunked' "
            "(or set TRITON_INTERPRET=1 before the first import to run the kernels, slowly, on the CPU)"
        )
    return triton_solver.solve
