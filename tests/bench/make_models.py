#!/usr/bin/env python3
"""Writes GGUF files with random weights, for measuring: make_models.py DIRECTORY --vocabulary FILE.gguf [options]

    mixtral-690m    16 experts of which a token takes 2, hidden 1024, expert FFN 1024, 12 layers, 16 heads, 8 kv heads
    dense-1024      hidden 1024, FFN 2816, 16 layers, 16 heads, 8 kv heads
    dense-2048      hidden 2048, FFN 8192, 22 layers, 32 heads, 8 kv heads: 1.4 G parameters, more than any cache holds

Every width is a multiple of 256, so a K-quant file holds that K-quant and no stand-in. The tokenizer comes from the file given (any
llama GGUF, as SmolLM2's); the seed is fixed, so a file is the same wherever it is made. Each model is written once in BF16; the other
types are made of that by llama.cpp's own quantiser. Q4_K is pure (every matrix), Q4_K_M the usual mixture; the others hold
embeddings as the quantiser likes them. Wants the PyPI packages gguf, numpy and llama-cpp-python.
"""
import argparse
import ctypes
import math
import pathlib

import gguf
import llama_cpp as lc
import numpy as np

SEED = 20240229
HEAD = 64
ATTENTION_SCALE = 0.1    # attention averages over positions: at full size it makes all tokens alike, and they choose the same experts
MODELS = {
    "mixtral-690m": dict(hidden=1024, ffn=1024, layers=12, heads=16, kv_heads=8, experts=16, used=2),
    "dense-1024": dict(hidden=1024, ffn=2816, layers=16, heads=16, kv_heads=8, experts=0, used=0),
    "dense-2048": dict(hidden=2048, ffn=8192, layers=22, heads=32, kv_heads=8, experts=0, used=0),
}
TYPES = {"Q4_0": (lc.LLAMA_FTYPE_MOSTLY_Q4_0, False), "Q4_1": (lc.LLAMA_FTYPE_MOSTLY_Q4_1, False),
         "Q8_0": (lc.LLAMA_FTYPE_MOSTLY_Q8_0, False), "Q4_K": (lc.LLAMA_FTYPE_MOSTLY_Q4_K_S, True),
         "Q4_K_M": (lc.LLAMA_FTYPE_MOSTLY_Q4_K_M, False)}


def tensors(m, vocabulary):
    """(name, shape with the contracted dimension last, kind) of every tensor, in the order of the file."""
    hidden, ffn = m["hidden"], m["ffn"]
    yield "token_embd.weight", (vocabulary, hidden), "matrix"
    for layer in range(m["layers"]):
        blk = f"blk.{layer}."
        yield blk + "attn_norm.weight", (hidden,), "norm"
        yield blk + "attn_q.weight", (m["heads"] * HEAD, hidden), "matrix"
        yield blk + "attn_k.weight", (m["kv_heads"] * HEAD, hidden), "matrix"
        yield blk + "attn_v.weight", (m["kv_heads"] * HEAD, hidden), "matrix"
        yield blk + "attn_output.weight", (hidden, m["heads"] * HEAD), "attention output"
        yield blk + "ffn_norm.weight", (hidden,), "norm"
        stack, suffix = ((m["experts"],), "_exps.weight") if m["experts"] else ((), ".weight")
        if m["experts"]:
            yield blk + "ffn_gate_inp.weight", (m["experts"], hidden), "router"
        yield blk + "ffn_gate" + suffix, stack + (ffn, hidden), "matrix"
        yield blk + "ffn_up" + suffix, stack + (ffn, hidden), "matrix"
        yield blk + "ffn_down" + suffix, stack + (hidden, ffn), "matrix"
    yield "output_norm.weight", (hidden,), "norm"


def copy_tokenizer(writer, reader):
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, element)


def write_bf16(path, name, reader):
    m = MODELS[name]
    vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
    part = path.with_suffix(".part")                     # nobody sees half a file under its name
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_name(name)
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(8192)
    writer.add_embedding_length(m["hidden"])
    writer.add_feed_forward_length(m["ffn"])
    writer.add_block_count(m["layers"])
    writer.add_head_count(m["heads"])
    writer.add_head_count_kv(m["kv_heads"])
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    if m["experts"]:
        writer.add_expert_count(m["experts"])
        writer.add_expert_used_count(m["used"])
    copy_tokenizer(writer, reader)
    random, count = np.random.default_rng(SEED), 0
    for tensor, shape, kind in tensors(m, vocabulary):
        count += math.prod(shape)
        if kind == "norm":
            writer.add_tensor(tensor, np.ones(shape, np.float32))
            continue
        values = random.standard_normal(shape, np.float32)
        values *= np.float32(shape[-1] ** -0.5)          # unit inputs give unit outputs, so logits stay about 1
        if kind == "attention output":
            values *= np.float32(ATTENTION_SCALE)
        if kind == "router":
            writer.add_tensor(tensor, values)
        else:
            bf16 = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(tensor, gguf.quants.quantize(values, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)
    return count


def quantise(source, target, kind, threads):
    ftype, pure = TYPES[kind]
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.pure, params.nthread = ftype, pure, threads
    part = target.with_suffix(".part")
    if lc.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params)):
        raise SystemExit(f"{target}: llama.cpp's quantiser failed")
    part.rename(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--vocabulary", required=True, help="GGUF file whose tokenizer is copied")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--types", default="BF16," + ",".join(TYPES))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.vocabulary)
    kinds = args.types.split(",")
    for name in args.models.split(","):
        base = args.directory / f"{name}-BF16.gguf"
        print(f"{name}: {write_bf16(base, name, reader) / 1e6:.1f} M parameters", flush=True)
        for kind in kinds:
            if kind != "BF16":
                target = args.directory / f"{name}-{kind}.gguf"
                quantise(base, target, kind, args.threads)
        if "BF16" not in kinds:
            base.unlink()


if __name__ == "__main__":
    main()
