"""ms-swift with AutoTrim, as an external plugin.

    pip install ./trimsft                                            # beside ms-swift: the core needs torch and numpy
    swift sft --external_plugins examples/frameworks/swift_plugin.py --callbacks trimsft \\
        --use_logits_to_keep false --model MODEL --dataset train.jsonl
"""

from typing import Any

from swift.callbacks import callbacks_map

import trimsft


class Trim(trimsft.TrimCallback):
    """ms-swift makes a callback from the arguments and the trainer."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(trimsft.AutoTrim())


callbacks_map["trimsft"] = Trim
