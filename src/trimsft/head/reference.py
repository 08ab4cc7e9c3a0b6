"""The plain formula on materialised logits: slow, large, obvious. Every other backend is tested against it."""

import torch
from torch import Tensor

from trimsft.head.problem import Problem, Solution, all_finite, gradient_mass, rows_to_keep, softcapped
from trimsft.objectives import TokenStats


def solve(problem: Problem) -> tuple[Tensor, Solution]:
    """Return the loss, differentiable by autograd (twice, too), and what else the head yields."""
    wide = torch.promote_types(problem.hidden_TH.dtype, torch.float32)
    logits_TV = problem.hidden_TH.to(wide) @ problem.weight_VH.to(wide).T
    if problem.bias_V is not None:
        logits_TV = logits_TV + problem.bias_V.to(wide)
    logits_TV = softcapped(logits_TV, problem.logit_scale, problem.softcap)

    gold_T1 = problem.labels_T[:, None]
    nll_T = -logits_TV.log_softmax(dim=-1).gather(1, gold_T1).squeeze(1)

    seen_TV = logits_TV.detach()
    probs_TV, onehot_TV = seen_TV.softmax(dim=-1), torch.zeros_like(seen_TV).scatter_(1, gold_T1, 1)
    gold_logit_T = seen_TV.gather(1, gold_T1).squeeze(1)
    best_other_T, competitor_T = seen_TV.scatter(1, gold_T1, -torch.inf).max(dim=1)
    tokens = TokenStats(
        nll=nll_T.detach().float(),
        gap=(gold_logit_T - best_other_T).float(),
        gold_logit=gold_logit_T.float(),
        competitor=competitor_T,
        entropy=torch.special.entr(probs_TV).sum(dim=1).float() if problem.with_entropy else None,
        gold=problem.labels_T,
        rank=(1 + (seen_TV > gold_logit_T[:, None]).sum(dim=1)).int() if problem.with_rank else None,
        gradient_norm=(probs_TV - onehot_TV).norm(dim=1).float() if problem.with_rank else None,
    )
    weights_T = problem.weights_of(tokens)
    keep_T = rows_to_keep(gradient_mass(tokens, weights_T), problem.skip_below)
    kept_nll_T = torch.where(keep_T, nll_T, nll_T.detach())
    loss = (weights_T.to(wide) * kept_nll_T).sum() / problem.divisor
    return loss, Solution(
        tokens=tokens, weights=weights_T, kept=int(keep_T.sum()), finite=all_finite(problem, tokens, weights_T)
    )
