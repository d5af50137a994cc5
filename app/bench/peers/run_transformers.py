"""transformers on a CPU: its plain forward pass, static cohorts, and its continuous batching."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from peer_loop import Command, load_clock, serve

STATIC_COHORT = 8  # its best size measured
KV_BLOCKS, BATCH_TOKENS = 256, 512

clock: Any = load_clock()


class Transformers:
    """One model in memory."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[options["dtype"]]
        models: Any = transformers.AutoModelForCausalLM
        self.model = models.from_pretrained(options["model"], dtype=dtype).eval()
        self.model.generation_config.eos_token_id = self.model.config.eos_token_id = None

    @torch.inference_mode()
    def decode(self, prompts: list[list[int]], steps: int) -> dict[str, Any]:
        """Mean time of a decode step, all sequences at once."""
        out = self.model(torch.tensor(prompts), use_cache=True, logits_to_keep=1)
        started = clock.now_ns()
        for _ in range(steps):
            token = out.logits[:, -1:].argmax(-1)
            out = self.model(token, past_key_values=out.past_key_values, use_cache=True)
        out.logits[:, -1:].argmax(-1)
        return {"step_s": clock.seconds(clock.now_ns() - started) / steps}

    @torch.inference_mode()
    def prefill(self, prompt: list[int]) -> dict[str, Any]:
        """Time from the prompt to its first token."""
        started = clock.now_ns()
        self.model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1).logits.argmax(-1)
        return {"time_s": clock.seconds(clock.now_ns() - started)}

    def clients(
        self, prompts: list[list[int]], output_tokens: list[int], mode: str
    ) -> dict[str, Any]:
        """All requests at once; the time until the last one has its last token."""
        run = {"static": self._static, "continuous": self._continuous}[mode]
        started = clock.now_ns()
        run(prompts, output_tokens)
        return {"makespan_s": clock.seconds(clock.now_ns() - started)}

    @torch.inference_mode()
    def _static(self, prompts: list[list[int]], output_tokens: list[int]) -> None:
        for first in range(0, len(prompts), STATIC_COHORT):
            cohort = prompts[first : first + STATIC_COHORT]
            longest = max(map(len, cohort))
            ids = torch.tensor([[0] * (longest - len(p)) + p for p in cohort])
            mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in cohort])
            tokens = max(output_tokens[first : first + STATIC_COHORT])
            self.model.generate(ids, attention_mask=mask, generation_config=_greedy(tokens))

    def _continuous(self, prompts: list[list[int]], output_tokens: list[int]) -> None:
        config = transformers.ContinuousBatchingConfig(
            num_blocks=KV_BLOCKS,
            max_batch_tokens=BATCH_TOKENS,
            use_cuda_graph=False,
            allow_block_sharing=False,
        )
        session = self.model.continuous_batching_context_manager(
            generation_config=_greedy(max(output_tokens)),
            continuous_batching_config=config,
            persistent_manager=True,
        )
        with session as manager:
            for prompt, tokens in zip(prompts, output_tokens, strict=True):
                manager.add_request(prompt, max_new_tokens=tokens, eos_token_id=-1)
            got = [manager.get_result() for _ in prompts]
        wrong = [r for r in got if r is None or r.error]
        if wrong or sum(len(r.generated_tokens) for r in got) != sum(output_tokens):
            raise RuntimeError(f"continuous batching lost tokens: {wrong}")


def _greedy(tokens: int) -> Any:
    settings: Any = transformers.GenerationConfig
    return settings(max_new_tokens=tokens, do_sample=False, pad_token_id=0, eos_token_id=None)


def start(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Command]]:
    """Load the model."""
    peer = Transformers(options)
    facts = {
        "version": transformers.__version__,
        "modes": ["continuous", "static"],
        "settings": f"static cohorts of {STATIC_COHORT}; continuous batching of up to "
        f"{BATCH_TOKENS} tokens a step",
    }
    return facts, {"decode": peer.decode, "prefill": peer.prefill, "clients": peer.clients}


if __name__ == "__main__":
    serve(start)
