"""Settings of `trimsft bench`. The measuring is in `trimsft.bench.head`, which imports torch:

report = run(BenchSettings(tokens=8192, hidden=4096, vocabulary=128_256))
"""

from dataclasses import dataclass

from trimsft.options import check_options, option

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Which shape is measured where; sizes left out are those of Qwen2.5-1.5B on CUDA, small ones on the CPU."""

    tokens: int | None = option(None, help="Trained tokens in a batch.", least=1)
    hidden: int | None = option(None, help="Size of a hidden state.", least=1)
    vocabulary: int | None = option(None, help="Rows of the head's weight.", least=2)
    device: str = option("auto", help="Where to measure: auto, cpu, cuda or cuda:N.")
    dtype: str = option("auto", help="Type of the inputs; auto is bfloat16 on CUDA, else float32.", choices=DTYPES)
    only: str = option("", help="Measure only methods whose name contains this.")
    seconds: float = option(0.1, help="Time spent on each measurement.", above=0)

    def __post_init__(self) -> None:
        check_options(self)
