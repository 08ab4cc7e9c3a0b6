"""vLLM in this process: the engine for large models and many samples on GPUs.

engine = VllmEngine("runs/trim/model", dtype="bfloat16")

Every sampling parameter is passed, because vLLM's own `max_tokens` is 16; the seed goes with each request. Scripts that
make this engine need `if __name__ == "__main__":`, because vLLM starts processes that import them again.
"""

import importlib.util
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.evaluate.engines import Completion, EngineError, Request, identify_model, require_room

AHEAD = 2048  # requests given to vLLM before the first of them is done: enough to fill it, few enough to abort


class VllmEngine:
    """A model served by vLLM's own scheduler, without a server."""

    name = "vllm"

    def __init__(self, model: str | Path, *, dtype: str = "auto", eager: bool = False) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise EngineError("vllm is not installed", field="engine", hint="pip install 'trimsft[vllm]'")
        import vllm

        self._vllm = vllm
        self._llm = vllm.LLM(model=str(model), dtype=dtype, enforce_eager=eager, trust_remote_code=False)
        config = self._llm.llm_engine.model_config
        self._limit, self.tokenizer = int(config.max_model_len), self._llm.get_tokenizer()
        dtype = str(config.dtype).removeprefix("torch.")
        self.identity: Mapping[str, Any] = {**identify_model(model), "dtype": dtype}
        self.details: Mapping[str, Any] = {"versions": {"vllm": vllm.__version__}, "model": str(model)}

    def check(self, requests: Sequence[Request]) -> None:
        require_room(requests, self._limit)

    def generate(self, requests: Sequence[Request]) -> Generator[Completion, None, None]:
        from vllm.inputs.engine import tokens_input

        self.check(requests)
        engine, waiting, running = self._llm.llm_engine, iter(enumerate(requests)), dict[str, int]()
        try:
            while True:
                while len(running) < AHEAD and (item := next(waiting, None)) is not None:
                    index, request = item
                    engine.add_request(str(index), tokens_input(list(request.tokens)), self._parameters(request))
                    running[str(index)] = index
                if not running:
                    return
                for output in engine.step():
                    if output.finished:
                        index, made = running.pop(output.request_id), output.outputs[0]
                        if made.finish_reason in ("stop", "length"):
                            yield Completion(index, made.text, len(made.token_ids), made.finish_reason)
                        else:
                            yield Completion(index, "", 0, "error", f"vLLM ended it with {made.finish_reason!r}")
        finally:
            if running:
                engine.abort_request(list(running))

    def _parameters(self, request: Request) -> Any:
        sampling = request.sampling
        return self._vllm.SamplingParams(
            n=1,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            max_tokens=sampling.max_tokens,
            seed=request.seed,
            stop=list(sampling.stop) or None,
            stop_token_ids=list(sampling.stop_tokens) or None,
            skip_special_tokens=True,
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )
