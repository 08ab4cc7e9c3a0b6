"""Find what is wrong in training data: rows and spans that a model would never write, and does not learn to write.

    result = audit(AuditSettings(data="train.jsonl", model="Qwen/Qwen2.5-Math-1.5B"))

`source` reads the data, `folds` measures gaps before and after a short training, `suspects` makes scores and spans
(`spans`) of them, `records` are the files, `run` leads.
"""

from trimsft.audit.settings import AuditSettings

__all__ = ["AuditSettings"]
