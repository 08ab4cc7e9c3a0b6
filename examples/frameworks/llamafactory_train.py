"""LLaMA-Factory with AutoTrim: its own entry point takes callbacks.

pip install ./trimsft                                            # beside LLaMA-Factory: the core needs torch and numpy
python examples/frameworks/llamafactory_train.py settings.yaml   # what llamafactory-cli train takes
"""

import sys

from llamafactory.train.tuner import run_exp

import trimsft

if __name__ == "__main__":
    # run_exp reads the YAML file and its overrides from sys.argv, as the command does
    print(f"LLaMA-Factory with AutoTrim: {' '.join(sys.argv[1:])}")
    run_exp(callbacks=[trimsft.TrimCallback(trimsft.AutoTrim())])
