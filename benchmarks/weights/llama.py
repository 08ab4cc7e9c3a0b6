"""Copies of a Llama, their parameters stacked: one forward pass for all of them.

Small models leave a GPU idle; M of them at once do not. Shapes: M models, B sequences of T tokens, N = B T of which P
are no padding, H hidden size, D size of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft.errors import UsageError
from trimsft.text.models import load_model

EMBEDDING, LAST_NORM = "model.embed_tokens.weight", "model.norm.weight"
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [M, N, heads, D], k and v [M, N, key heads, D]) -> [M, N, heads, D]."""


@dataclass(frozen=True)
class Base:
    """The model that every copy begins as."""

    config: Any
    weights: dict[str, Tensor]

    @classmethod
    def load(cls, source: str | Path) -> Base:
        """From a model folder, or from a GGUF file."""
        path = Path(source)
        if path.suffix == ".gguf":
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
        else:
            model = load_model(source, dtype=torch.float32, field="base")
        return cls.of(model)

    @classmethod
    def of(cls, model: Any) -> Base:
        config = model.config
        is_plain = config.model_type == "llama" and config.rope_parameters["rope_type"] == "default"
        if not is_plain or not config.tie_word_embeddings or config.attention_bias or config.mlp_bias:
            problem = "must be a Llama with tied embeddings, no biases and plain rotary positions"
            raise UsageError(problem, field="base", value=config.model_type)
        named = model.named_parameters()
        return cls(config, {name: one.detach().float() for name, one in named if name != "lm_head.weight"})


class StackedLlama:
    """M copies; `parameters` holds a tensor [M, ...] for each of the base's."""

    def __init__(self, config: Any, parameters: dict[str, Tensor], compute: torch.dtype = torch.float32) -> None:
        self.config, self.parameters, self.compute = config, parameters, compute
        self.count = len(parameters[EMBEDDING])
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.cos, self.sin = _rotation(config, self.head_size, parameters[EMBEDDING].device)

    @classmethod
    def of(cls, base: Base, count: int, device: str = "cpu", compute: torch.dtype = torch.float32) -> StackedLlama:
        weights = {name: one.to(device).expand(count, *one.shape) for name, one in base.weights.items()}
        return cls(base.config, weights, compute)

    @property
    def device(self) -> torch.device:
        return self.parameters[EMBEDDING].device

    def trainable(self) -> StackedLlama:
        """The same with parameters of its own."""
        own = {name: one.clone(memory_format=torch.contiguous_format) for name, one in self.parameters.items()}
        return StackedLlama(self.config, {name: one.requires_grad_() for name, one in own.items()}, self.compute)

    def part(self, first: int, last: int) -> StackedLlama:
        """Some of the models, for use without gradients: their matrices in the dtype of computing."""
        chosen = {name: one.detach()[first:last] for name, one in self.parameters.items()}
        halved = {name: one.to(self.compute) if one.dim() > 2 else one for name, one in chosen.items()}
        return StackedLlama(self.config, halved, self.compute)

    def hidden(
        self, ids_MBT: Tensor, real_MP: Tensor | None = None, keep: list[tuple[Tensor, Tensor]] | None = None
    ) -> Tensor:
        """The last hidden states of sequences from their first token on: [M, N, H], or [M, P, H] of real tokens.

        Args:
            real_MP: which of the N tokens are to be computed; the others must be padding at the end of a sequence.
            keep: takes keys and values of each layer, both [M, B, key heads, T, D].
        """
        models, sequences, length = ids_MBT.shape
        is_whole = real_MP is None
        if real_MP is None:
            real_MP = torch.arange(sequences * length, device=self.device).expand(models, -1)
        real_MP11 = real_MP[:, :, None, None]

        def attend(layer: int, *parts: Tensor) -> Tensor:
            if not is_whole:
                empty = [part.new_zeros(models, sequences * length, *part.shape[2:]) for part in parts]
                parts = tuple(e.scatter(1, real_MP11.expand_as(p), p) for e, p in zip(empty, parts, strict=True))
            q, k, v = (part.view(models * sequences, length, -1, self.head_size).transpose(1, 2) for part in parts)
            if keep is not None:
                keep.append(tuple(one.unflatten(0, (models, sequences)) for one in (k, v)))
            k, v = (one.repeat_interleave(self.heads // self.key_heads, dim=1) for one in (k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(parts[0].shape)
            return mixed if is_whole else mixed.gather(1, real_MP11.expand(-1, -1, *mixed.shape[2:]))

        return self.forward(ids_MBT.flatten(1).gather(1, real_MP), real_MP % length, attend)

    def forward(self, ids_MN: Tensor, places_MN: Tensor, attend: Attend) -> Tensor:
        """The last hidden states of tokens at these places; `attend` knows what each of them sees."""
        table = self.parameters[EMBEDDING]
        rows_MN = ids_MN + table.shape[1] * torch.arange(self.count, device=self.device)[:, None]
        x = F.embedding(rows_MN, table.flatten(0, 1)).float()
        cos, sin = (one[places_MN][:, :, None].to(self.compute) for one in (self.cos, self.sin))
        for layer in range(self.config.num_hidden_layers):
            own = f"model.layers.{layer}."
            h = self._norm(x, own + "input_layernorm.weight")
            q, k, v = (self._linear(h, f"{own}self_attn.{one}_proj.weight") for one in "qkv")
            q, k, v = (one.unflatten(-1, (-1, self.head_size)) for one in (q, k, v))
            mixed = attend(layer, _rotate(q, cos, sin), _rotate(k, cos, sin), v).flatten(2)
            x = x + self._linear(mixed, own + "self_attn.o_proj.weight")
            h = self._norm(x, own + "post_attention_layernorm.weight")
            gate, up = (self._linear(h, f"{own}mlp.{one}_proj.weight") for one in ("gate", "up"))
            x = x + self._linear(F.silu(gate) * up, own + "mlp.down_proj.weight")
        return self._norm(x, LAST_NORM)

    def logits(self, hidden_MNH: Tensor) -> Tensor:
        """float32, [M, N, vocabulary]."""
        return self._linear(hidden_MNH, EMBEDDING).float()

    def _linear(self, x_MNH: Tensor, name: str) -> Tensor:
        return torch.bmm(x_MNH, self.parameters[name].to(self.compute).transpose(1, 2))

    def _norm(self, x_MNH: Tensor, name: str) -> Tensor:
        plain = F.rms_norm(x_MNH, x_MNH.shape[-1:], eps=self.config.rms_norm_eps)
        return (plain * self.parameters[name][:, None]).to(self.compute)


def _rotation(config: Any, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of rotary positions, both [places, D]."""
    exponents = torch.arange(0, size, 2, device=device).float() / size
    speeds = 1.0 / config.rope_parameters["rope_theta"] ** exponents
    places = max(config.max_position_embeddings, 1024)
    angles = torch.arange(places, device=device).float()[:, None] * speeds
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
