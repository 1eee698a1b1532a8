#!/usr/bin/env python3
"""Tiny random GGUF models with the logits that transformers computes from their dequantised weights (float32, eager).

    python make_gguf.py [NAME ...]               writes models/NAME/ beside this file

Each directory holds model.gguf, ids.json (the prompt) and logits.npy (float32, (prompt, vocabulary)). The files are
written with the `gguf` package as llama.cpp's converter lays models out: names blk.N.*, rows of q and k permuted so that
rope turns neighbours (2i, 2i+1), llama3 scaling as the tensor rope_freqs.weight. Every tensor is dequantised by the same
package (independent of shardrun), put back into transformers' order, and run there. Versions: see README.md.
"""
import json
import math
import pathlib
import shutil
import sys

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as T
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from make_checkpoints import LLAMA3, MODELS, golden

BASE = dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False)

# name: (config changes, {part of a GGUF tensor name: type}, options). The first match counts; F32 without one.
VARIANTS = {
    "gguf-llama-f32": (dict(tie_word_embeddings=True), {}, {}),
    "gguf-llama-mixed": (dict(rope_parameters=LLAMA3), {
        "token_embd": T.Q8_0, "output.weight": T.Q5_0, "0.attn_q.": T.Q4_0, "0.attn_k": T.Q4_1, "0.attn_v": T.Q5_0,
        "0.attn_output": T.Q5_1, "0.ffn_gate": T.Q8_0, "0.ffn_up": T.F16, "0.ffn_down": T.BF16, "1.attn_q.": T.BF16,
        "1.attn_k": T.F16, "1.attn_v": T.Q8_0, "1.attn_output": T.Q4_0, "1.ffn_gate": T.Q4_1, "1.ffn_up": T.Q5_1,
        "1.ffn_down": T.Q4_0}, {"tokens": True}),
    "gguf-llama-k": (dict(hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=8,
                          head_dim=32, tie_word_embeddings=True), {
        "token_embd": T.Q6_K, "attn_q.": T.Q4_K, "attn_k": T.Q5_K, "attn_v": T.Q6_K, "attn_output": T.Q5_K,
        "ffn_gate": T.Q4_K, "ffn_up": T.Q5_K, "ffn_down": T.Q6_K}, {}),
    "gguf-llama-linear": (dict(rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.0)),
                          {"attn": T.F16, "ffn": T.F16}, {}),
    "gguf-mixtral": (dict(num_local_experts=8, num_experts_per_tok=2, intermediate_size=32), {
        "token_embd": T.F16, "attn_q.": T.Q8_0, "attn_k": T.Q8_0, "attn_v": T.Q8_0, "attn_output": T.Q5_1,
        "gate_exps": T.Q4_0, "up_exps": T.Q5_1, "down_exps": T.Q8_0}, {}),
    "gguf-mixtral-split": (dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=64, hidden_size=32,
                                num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=True),
                           {"ffn_gate.": T.Q8_0, "ffn_up": T.F16, "ffn_down": T.Q4_1, "attn_q.": T.F16}, {"split": True}),
}


def permute(w, heads):
    """Rows (i, i + D/2) of each head become neighbours, as llama.cpp's converter does."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def random_k_blocks(kind, shape, std, rng):
    """Random bytes as K-quants (the gguf package reads these types but does not write them). The scales are chosen so that
    the values have about this deviation and mean 0; layouts are those of ggml-quants.c."""
    n = math.prod(shape) // 256

    def half(value):
        return np.full((n, 1), value, np.float16).view(np.uint8) + np.zeros((n, 2), np.uint8)

    def noise(size):
        return rng.integers(0, 256, (n, size), dtype=np.uint8)

    if kind == T.Q4_K:       # d, dmin, 12 bytes of 6-bit scales and minima, 128 of nibbles
        d = std / 200
        parts = [half(d), half(7.5 * d), noise(12), noise(128)]
    elif kind == T.Q5_K:     # d, dmin, 12, 32 of fifth bits, 128 of nibbles
        d = std / 400
        parts = [half(d), half(15.5 * d), noise(12), noise(32), noise(128)]
    else:                    # Q6_K: 128 low nibbles, 64 of high bits, 16 signed scales, d
        scales = rng.integers(-40, 41, (n, 16), dtype=np.int8).view(np.uint8)
        parts = [noise(128), noise(64), scales, half(std / 430)]
    block = np.concatenate(parts, axis=1)
    return block.reshape(*shape[:-1], shape[-1] // 256 * block.shape[1])


def hf_tensors(config, moe):
    """(GGUF name, HF name, shape, deviation, heads to permute by or 0) of every tensor; experts come stacked."""
    c, f, d = config.hidden_size, config.intermediate_size, config.head_dim
    h, k = config.num_attention_heads, config.num_key_value_heads
    wide = 0.2 * math.sqrt(48 / c)
    yield "token_embd.weight", "model.embed_tokens.weight", (config.vocab_size, c), 0.35 * math.sqrt(48 / c), 0
    yield "output_norm.weight", "model.norm.weight", (c,), None, 0
    if not config.tie_word_embeddings:
        yield "output.weight", "lm_head.weight", (config.vocab_size, c), 0.35 * math.sqrt(48 / c), 0
    for i in range(config.num_hidden_layers):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        yield b + "attn_norm.weight", m + "input_layernorm.weight", (c,), None, 0
        yield b + "attn_q.weight", m + "self_attn.q_proj.weight", (h * d, c), wide, h
        yield b + "attn_k.weight", m + "self_attn.k_proj.weight", (k * d, c), wide, k
        yield b + "attn_v.weight", m + "self_attn.v_proj.weight", (k * d, c), wide, 0
        yield b + "attn_output.weight", m + "self_attn.o_proj.weight", (c, h * d), wide, 0
        yield b + "ffn_norm.weight", m + "post_attention_layernorm.weight", (c,), None, 0
        if moe:
            e = config.num_local_experts
            yield b + "ffn_gate_inp.weight", m + "mlp.gate.weight", (e, c), 0.4, 0
            yield b + "ffn_gate_exps.weight", m + "gate_exps", (e, f, c), wide, 0
            yield b + "ffn_up_exps.weight", m + "up_exps", (e, f, c), wide, 0
            yield b + "ffn_down_exps.weight", m + "mlp.experts.down_proj", (e, c, f), wide, 0
        else:
            yield b + "ffn_gate.weight", m + "mlp.gate_proj.weight", (f, c), wide, 0
            yield b + "ffn_up.weight", m + "mlp.up_proj.weight", (f, c), wide, 0
            yield b + "ffn_down.weight", m + "mlp.down_proj.weight", (c, f), wide, 0


def rope_factors(config):
    """What llama.cpp's converter computes from llama3 scaling: what each frequency is divided by."""
    rope, d = config.rope_parameters, config.head_dim
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for i in range(0, d, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / d)
        smooth = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"])
        factors.append(1.0 if wave < high else rope["factor"] if wave > low else
                       1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def write_keys(w, config, moe, options):
    rope = config.rope_parameters
    w.add_name("tiny")
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_key_length(config.head_dim)
    w.add_value_length(config.head_dim)
    w.add_rope_dimension_count(config.head_dim)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if moe:
        w.add_expert_count(config.num_local_experts)
        w.add_expert_used_count(config.num_experts_per_tok)
    if options.get("tokens"):      # the size of the vocabulary then comes from the list
        w.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    else:
        w.add_vocab_size(config.vocab_size)


def write_tensor(w, name, values, kind, options):
    """values float32, or bytes of a K-quant. Returns what a reader gets."""
    if values.dtype != np.uint8:
        values = gguf.quants.quantize(values, kind)
    if options.get("split") and "_exps" in name:
        for e in range(values.shape[0]):
            w.add_tensor(name.replace("_exps.weight", f".{e}.weight"), np.ascontiguousarray(values[e]), raw_dtype=kind)
    else:
        w.add_tensor(name, values, raw_dtype=kind)
    return gguf.quants.dequantize(values, kind).astype(np.float32)


def make(name, seed):
    changes, types, options = VARIANTS[name]
    moe = "num_local_experts" in changes
    config = (MixtralConfig if moe else LlamaConfig)(**{**BASE, **changes})
    directory = MODELS / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(directory / "model.gguf", "llama")
    write_keys(w, config, moe, options)
    state = {}
    for gguf_name, hf_name, shape, std, heads in hf_tensors(config, moe):
        kind = next((t for part, t in types.items() if part in gguf_name), T.F32)
        if "_K" in kind.name:
            values = random_k_blocks(kind, shape, std, rng)     # already in the file's order of rows
        else:
            values = rng.standard_normal(shape, dtype=np.float32)
            values = (1 + 0.2 * values if std is None else std * values).astype(np.float32)
            values = permute(values, heads) if heads else values
        values = write_tensor(w, gguf_name, values, kind, options)
        state[hf_name] = torch.from_numpy(np.ascontiguousarray(unpermute(values, heads) if heads else values))
    if config.rope_parameters["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(config))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    model = (MixtralForCausalLM if moe else LlamaForCausalLM)._from_config(config, attn_implementation="eager").eval()
    for i in range(config.num_hidden_layers if moe else 0):
        m = f"model.layers.{i}."
        state[m + "mlp.experts.gate_up_proj"] = torch.cat([state.pop(m + "gate_exps"), state.pop(m + "up_exps")], dim=1)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    golden(directory, model, seed)


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}")
    torch.set_num_threads(1)
    for i, name in enumerate(VARIANTS):
        if name in (sys.argv[1:] or VARIANTS):
            make(name, 2000 + i)
