"""transformers' generate with a static cache: a Llama with random weights answers requests of one length."""

from __future__ import annotations

import os

import torch
from stopwatch import DEVICE, Laps
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

SMALL = bool(os.environ.get("SMALL"))
REQUESTS, PROMPT, NEW = (6, 16, 12) if SMALL else (20, 128, 64)
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}
LARGE = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "vocab_size": 32000}


class Timing(LogitsProcessor):
    """Is called once for each token."""

    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.laps.part("token")
        return scores


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**(SIZES if SMALL else LARGE), num_attention_heads=16, num_key_value_heads=16)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(torch.float32 if SMALL else torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    if DEVICE == "cpu":  # generate compiles by itself on a GPU alone
        model.generation_config.compile_config = CompileConfig()
        model.generation_config.compile_config._compile_all_devices = True
    prompts = torch.randint(config.vocab_size, (REQUESTS, 1, PROMPT), device=DEVICE)
    laps = Laps("request", REQUESTS)
    answers = []
    for prompt in prompts:
        answer = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW,
            do_sample=False,
            cache_implementation="static",
            logits_processor=LogitsProcessorList([Timing(laps)]),
        )
        answers.append(answer[0, PROMPT:].tolist())
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
