#!/usr/bin/env python3
"""Tiny random checkpoints with the logits that transformers computes for them (float32, eager attention).

    python make_checkpoints.py [NAME ...]        writes models/NAME/ beside this file

Each directory holds config.json, model*.safetensors, generation_config.json where transformers writes it, ids.json (the
prompt) and logits.npy (float32, (prompt, vocabulary)): the logits of every position of the prompt. They are computed from
the files as saved (reloaded, widened to float32), so a BF16 checkpoint is compared on its own rounded weights. Such a
checkpoint also has logits-bf16.npy: the same with the inputs of all matrices rounded to bf16.
Versions: see README.md.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM

MODELS = pathlib.Path(__file__).resolve().parent / "models"
PROMPT_TOKENS = 40            # more than one attention block of 32, and more than the window of 16
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)

LLAMA = (LlamaConfig, LlamaForCausalLM)
MISTRAL = (MistralConfig, MistralForCausalLM)
MIXTRAL = (MixtralConfig, MixtralForCausalLM)
BASE = dict(vocab_size=131, hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False)

# name: (classes, config changes, how it is saved)
VARIANTS = {
    "llama-tied": (LLAMA, dict(tie_word_embeddings=True), {}),
    "llama-untied": (LLAMA, dict(num_hidden_layers=3), {}),
    "llama-head-dim": (LLAMA, dict(head_dim=16, eos_token_id=[2, 7]), {}),
    "llama-no-head-dim": (LLAMA, dict(head_dim=None, num_attention_heads=3, num_key_value_heads=1), {"drop": ["head_dim"]}),
    "llama-full-heads": (LLAMA, dict(num_attention_heads=4, num_key_value_heads=4, head_dim=12), {}),
    "llama-rope-llama3": (LLAMA, dict(rope_parameters=LLAMA3), {}),
    "llama-rope-linear": (LLAMA, dict(rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.5)), {}),
    "llama-bias": (LLAMA, dict(attention_bias=True, mlp_bias=True), {}),
    "llama-sharded": (LLAMA, dict(num_hidden_layers=3), {"max_shard_size": "60KB"}),
    "llama-bf16": (LLAMA, dict(intermediate_size=96), {"dtype": torch.bfloat16}),
    "llama-f16": (LLAMA, dict(intermediate_size=96), {"dtype": torch.float16}),
    "mistral-window": (MISTRAL, dict(sliding_window=16), {}),
    "mixtral-8x2": (MIXTRAL, dict(num_local_experts=8, num_experts_per_tok=2, intermediate_size=40), {}),
    "mixtral-5x3": (MIXTRAL, dict(num_local_experts=5, num_experts_per_tok=3, tie_word_embeddings=True,
                                  intermediate_size=56, hidden_size=40, num_attention_heads=5, num_key_value_heads=1), {}),
}
# The same weights with a config.json as transformers 4 wrote it: name: (source, type key of rope_scaling)
OLD_CONFIGS = {
    "llama-rope-llama3-v4": ("llama-rope-llama3", "rope_type"),
    "llama-rope-linear-v4": ("llama-rope-linear", "type"),
}


def randomise(model, seed):
    """Weights so large that logits have a magnitude of 1 to 10 and every part of the model shows in them."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=g)
            if "norm" in name:
                p.copy_(1 + 0.2 * noise)
            elif "embed" in name or "lm_head" in name:
                p.copy_(0.35 * noise)
            elif name.endswith("bias"):
                p.copy_(0.3 * noise)
            elif name.endswith("mlp.gate.weight"):      # the router
                p.copy_(0.4 * noise)
            else:
                p.copy_(0.2 * noise)
    model.tie_weights()


def router_margin(model, ids):
    """The smallest distance between the last expert chosen and the first one not: a choice that hangs on the last bit
    would make a golden file that proves nothing."""
    seen = []

    def look(module, args, _):
        best = (args[0].detach().reshape(-1, module.weight.shape[1]) @ module.weight.T).sort(dim=-1, descending=True).values
        k = model.config.num_experts_per_tok
        seen.append((best[:, k - 1] - best[:, k]).min().item())

    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    hooks = [gate.register_forward_hook(look) for gate in gates]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return min(seen, default=1.0), logits


def bf16_logits(model, ids):
    def rounded(_, args):
        return (args[0].to(torch.bfloat16).to(torch.float32),)

    hooks = [m.register_forward_pre_hook(rounded) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return logits


def golden(directory, model, seed, is_bf16=False):
    vocab = model.config.vocab_size
    margin = 0
    while margin < 2e-3:      # another prompt, until every choice of experts is clear
        ids = np.random.default_rng(seed).integers(3, vocab, PROMPT_TOKENS).tolist()
        margin, logits = router_margin(model, ids)
        seed += 1000
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    np.save(directory / "logits.npy", logits)
    if is_bf16:
        np.save(directory / "logits-bf16.npy", bf16_logits(model, ids))
    (directory / "ids.json").write_text(json.dumps(ids) + "\n")
    print(f"{directory.name}: |logits| mean {np.abs(logits).mean():.2f} max {np.abs(logits).max():.2f}")


def make(name, seed):
    (config_class, model_class), changes, how = VARIANTS[name]
    directory = MODELS / name
    shutil.rmtree(directory, ignore_errors=True)
    config = config_class(**{**BASE, **changes})
    model = model_class(config)
    randomise(model, seed)
    model.to(how.get("dtype", torch.float32))
    model.save_pretrained(directory, max_shard_size=how.get("max_shard_size", "5GB"))
    path = directory / "config.json"
    saved = json.loads(path.read_text())
    if "drop" in how:
        path.write_text(json.dumps({k: v for k, v in saved.items() if k not in how["drop"]}, indent=2) + "\n")
    golden(directory, model_class.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval(), seed,
           how.get("dtype") == torch.bfloat16)


def make_old(name):
    source, type_key = OLD_CONFIGS[name]
    directory = MODELS / name
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(MODELS / source, directory)
    config = json.loads((directory / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {type_key: rope.pop("rope_type"), **rope}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.45.0"
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*VARIANTS, *OLD_CONFIGS]
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}")
    torch.set_num_threads(1)
    for i, name in enumerate(VARIANTS):
        if name in wanted:
            make(name, 1000 + i)
    for name in OLD_CONFIGS:
        if name in wanted:
            make_old(name)
