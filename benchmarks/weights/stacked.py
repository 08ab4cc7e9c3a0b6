"""Copies of one model, their parameters stacked: one forward pass for all of them.

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

from benchmarks.weights.architectures import Architecture
from trimsft.models import load_model

EMBEDDING, LAST_NORM = "model.embed_tokens.weight", "model.norm"
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [M, N, heads, D], k and v [M, N, key heads, D]) -> [M, N, heads, D]."""


@dataclass(frozen=True)
class Base:
    """The model that every copy begins as."""

    architecture: Architecture
    weights: dict[str, Tensor]

    @classmethod
    def load(cls, source: str | Path) -> Base:
        """From a model folder, or from a GGUF file."""
        path = Path(source)
        if path.suffix == ".gguf":
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
        else:
            model = load_model(source, dtype=torch.float32)
        return cls.of(model)

    @classmethod
    def of(cls, model: Any) -> Base:
        named = model.named_parameters()
        weights = {name: one.detach().float() for name, one in named if name != "lm_head.weight"}
        return cls(Architecture.of(model.config), weights)

    @property
    def vocabulary(self) -> int:
        return len(self.weights[EMBEDDING])


class StackedModel:
    """M copies; `parameters` holds a tensor [M, ...] for each of the base's."""

    def __init__(
        self, architecture: Architecture, parameters: dict[str, Tensor], compute: torch.dtype = torch.float32
    ) -> None:
        self.architecture, self.parameters, self.compute = architecture, parameters, compute
        self.count = len(parameters[EMBEDDING])
        exponents = torch.arange(0, architecture.head_size, 2, device=self.device).float() / architecture.head_size
        self.speeds = {layer.theta: 1.0 / layer.theta**exponents for layer in dict.fromkeys(architecture.layers)}

    @classmethod
    def of(cls, base: Base, count: int, device: str = "cpu", compute: torch.dtype = torch.float32) -> StackedModel:
        weights = {name: one.to(device).expand(count, *one.shape) for name, one in base.weights.items()}
        return cls(base.architecture, weights, compute)

    @property
    def device(self) -> torch.device:
        return self.parameters[EMBEDDING].device

    @property
    def vocabulary(self) -> int:
        return self.parameters[EMBEDDING].shape[1]

    def trainable(self) -> StackedModel:
        """The same with parameters of its own."""
        own = {name: one.clone(memory_format=torch.contiguous_format) for name, one in self.parameters.items()}
        return StackedModel(self.architecture, {name: one.requires_grad_() for name, one in own.items()}, self.compute)

    def part(self, first: int, last: int) -> StackedModel:
        """Some of the models, for use without gradients: their matrices in the dtype of computing."""
        chosen = {name: one.detach()[first:last] for name, one in self.parameters.items()}
        halved = {name: one.to(self.compute) if one.dim() > 2 else one for name, one in chosen.items()}
        return StackedModel(self.architecture, halved, self.compute)

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
        masks = self._masks(length)

        def attend(layer: int, *parts: Tensor) -> Tensor:
            if not is_whole:
                empty = [part.new_zeros(models, sequences * length, *part.shape[2:]) for part in parts]
                parts = tuple(e.scatter(1, real_MP11.expand_as(p), p) for e, p in zip(empty, parts, strict=True))
            q, k, v = (part.view(models * sequences, length, *part.shape[2:]).transpose(1, 2) for part in parts)
            if keep is not None:
                keep.append(tuple(one.unflatten(0, (models, sequences)) for one in (k, v)))
            mixed = self._attention(q, k, v, masks[layer]).transpose(1, 2).reshape(parts[0].shape)
            return mixed if is_whole else mixed.gather(1, real_MP11.expand(-1, -1, *mixed.shape[2:]))

        return self.forward(ids_MBT.flatten(1).gather(1, real_MP), real_MP % length, attend)

    def forward(self, ids_MN: Tensor, places_MN: Tensor, attend: Attend) -> Tensor:
        """The last hidden states of tokens at these places; `attend` knows what each of them sees."""
        norms, activation = self.architecture.norms, self.architecture.activation
        x = self._embedded(ids_MN)
        rotations = self._rotations(places_MN)
        for at, layer in enumerate(self.architecture.layers):
            own = f"model.layers.{at}."
            h = self._norm(x, own, norms.before_attention)
            q, k, v = (self._linear(h, f"{own}self_attn.{one}_proj.weight") for one in "qkv")
            q, k, v = (one.unflatten(-1, (-1, self.architecture.head_size)) for one in (q, k, v))
            q, k = self._norm(q, own, norms.of_queries), self._norm(k, own, norms.of_keys)
            cos, sin = rotations[layer.theta]
            mixed = attend(at, _rotate(q, cos, sin), _rotate(k, cos, sin), v).flatten(2)
            x = x + self._norm(self._linear(mixed, own + "self_attn.o_proj.weight"), own, norms.after_attention)
            h = self._norm(x, own, norms.before_mlp)
            gate, up = (self._linear(h, f"{own}mlp.{one}_proj.weight") for one in ("gate", "up"))
            h = self._linear(activation(gate) * up, own + "mlp.down_proj.weight")
            x = x + self._norm(h, own, norms.after_mlp)
        return self._norm(x, "", LAST_NORM)

    def logits(self, hidden_MNH: Tensor) -> Tensor:
        """float32, [M, N, vocabulary], of products in the dtype of the hidden states."""
        return self._linear(hidden_MNH, EMBEDDING).float()

    def _embedded(self, ids_MN: Tensor) -> Tensor:
        table, scale = self.parameters[EMBEDDING], self.architecture.embedding_scale
        rows_MN = ids_MN + self.vocabulary * torch.arange(self.count, device=self.device)[:, None]
        x = F.embedding(rows_MN, table.flatten(0, 1)).float()
        return x if scale == 1 else x * scale

    def _linear(self, x_MNH: Tensor, name: str) -> Tensor:
        return torch.bmm(x_MNH, self.parameters[name].to(x_MNH.dtype).transpose(1, 2))

    def _norm(self, x: Tensor, own: str, name: str | None) -> Tensor:
        """RMS norm over the last dimension of x [M, ...]; x itself where there is no such norm."""
        if name is None:
            return x
        plain = F.rms_norm(x.float(), x.shape[-1:], eps=self.architecture.norm_eps)
        weight, offset = self.parameters[f"{own}{name}.weight"], self.architecture.norm_offset
        weight = (weight + offset if offset else weight).view(self.count, *[1] * (x.dim() - 2), -1)
        return (plain * weight).to(self.compute)

    def _rotations(self, places_MN: Tensor) -> dict[float, tuple[Tensor, Tensor]]:
        """Cosine and sine of rotary positions by their base, both [M, N, 1, D]."""
        rotations = {}
        for theta, speeds in self.speeds.items():
            angles = places_MN[:, :, None, None].float() * speeds
            angles = torch.cat([angles, angles], dim=-1)
            rotations[theta] = angles.cos().to(self.compute), angles.sin().to(self.compute)
        return rotations

    def _masks(self, length: int) -> list[Tensor | None]:
        """What tokens of a sequence see in each layer, [T, T]; None where it is all before them."""
        places = torch.arange(length, device=self.device)
        behind_TT = places[:, None] - places
        windows = {layer.window for layer in self.architecture.layers}
        by_window = {one: (behind_TT >= 0) & (behind_TT < one) for one in windows if one is not None and one < length}
        return [by_window.get(layer.window) for layer in self.architecture.layers]

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, mask_TT: Tensor | None) -> Tensor:
        """All [rows, heads or key heads, T, D]."""
        group, scale = self.architecture.heads // self.architecture.key_heads, self.architecture.attention_scale
        k, v = (one.repeat_interleave(group, dim=1) for one in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_TT, is_causal=mask_TT is None, scale=scale)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
