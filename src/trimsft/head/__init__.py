"""The fused LM head: hidden states, lm_head weight and labels in; statistics, weights, loss and gradients out."""

from trimsft.head.loss import BACKENDS, LossOutput, linear_cross_entropy
from trimsft.head.problem import DEFAULT_SKIP_BELOW, IGNORED, BackendUnavailable

__all__ = ["BACKENDS", "DEFAULT_SKIP_BELOW", "IGNORED", "BackendUnavailable", "LossOutput", "linear_cross_entropy"]
