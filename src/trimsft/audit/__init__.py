"""Find what is wrong in training data: rows and spans that a model would never write, and does not learn to write.

result = audit(AuditSettings(data="train.jsonl", model="Qwen/Qwen2.5-Math-1.5B"))
"""

from trimsft.audit.run import AuditSettings

__all__ = ["AuditSettings"]
