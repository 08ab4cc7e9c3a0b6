"""Find what is wrong in training data: rows and spans that a model would never write, and does not learn to write.

    result = audit(AuditSettings(data="train.jsonl", model="Qwen/Qwen2.5-Math-1.5B"))

`run` has the settings, the folder and the order of the steps; `suspects` measures gaps before and after a short
training, and makes scores and spans of them.
"""

from trimsft.audit.run import AuditSettings

__all__ = ["AuditSettings"]
