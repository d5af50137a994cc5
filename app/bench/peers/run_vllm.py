"""vLLM on a CPU, in the process: no HTTP, no detokenizer, prefix cache off."""

from __future__ import annotations

from typing import Any

import vllm
from peer_loop import Command, load_clock, serve

MAX_SEQUENCES, MAX_CONTEXT, BATCH_TOKENS = 64, 4096, 4096

clock: Any = load_clock()


class VLLM:
    """One engine."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.engine = vllm.LLM(
            model=options["model"],
            dtype={"bf16": "bfloat16", "fp32": "float32"}[options["dtype"]],
            max_model_len=min(MAX_CONTEXT, options["max_context"]),
            max_num_seqs=MAX_SEQUENCES,
            max_num_batched_tokens=BATCH_TOKENS,
            enable_prefix_caching=False,
            seed=0,
        )

    def decode(self, prompts: list[list[int]], steps: int) -> dict[str, Any]:
        """Mean time of a decode step: one token each, then all of them, in turn."""
        first_s = self._generate(prompts, [1] * len(prompts))
        all_s = self._generate(prompts, [1 + steps] * len(prompts))
        return {"step_s": (all_s - first_s) / steps}

    def prefill(self, prompt: list[int]) -> dict[str, Any]:
        """Time from the prompt to its first token."""
        return {"time_s": self._generate([prompt], [1])}

    def clients(
        self, prompts: list[list[int]], output_tokens: list[int], mode: str
    ) -> dict[str, Any]:
        """All requests at once; the time until the last one has its last token."""
        return {"makespan_s": self._generate(prompts, output_tokens)}

    def _generate(self, prompts: list[list[int]], output_tokens: list[int]) -> float:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        params = [
            vllm.SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False)
            for n in output_tokens
        ]
        started = clock.now_ns()
        got = self.engine.generate(asked, params, use_tqdm=False)
        time_s: float = clock.seconds(clock.now_ns() - started)
        if [len(r.outputs[0].token_ids) for r in got] != output_tokens:
            raise RuntimeError("vLLM gave another number of tokens than asked for")
        return time_s


def start(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Command]]:
    """Load the model; takes a minute, most of it compiling."""
    peer = VLLM(options)
    facts = {
        "version": vllm.__version__,
        "modes": ["continuous"],
        "settings": f"up to {MAX_SEQUENCES} sequences and {BATCH_TOKENS} tokens a step",
    }
    return facts, {"decode": peer.decode, "prefill": peer.prefill, "clients": peer.clients}


if __name__ == "__main__":
    serve(start)
