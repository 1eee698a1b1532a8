#!/usr/bin/env python3
"""How far llama.cpp's logits lie from float ones on the same GGUF file: the bar for our default arithmetic.

    python make_quality.py MODEL.gguf [--write] [--shardrun PROGRAM]

Text: quality/text.txt, four passages; each gives one context of its first 500 tokens. Reference: transformers in float32
on the weights as the `gguf` package dequantises them. llama.cpp (PyPI llama-cpp-python) runs with its defaults, which are a
KV cache of f16 and flash attention where it likes, and once more with a KV cache of f32 and without flash attention. Over all 2,000 positions: the
Kullback-Leibler divergence sum p log(p / q) of the next token in double precision (p the reference), and the share of
positions where both have the same first token.

--write stores quality/golden.json, which tests/unit/test_quality.c reads: {"model", "versions", "cpu", "contexts": [ids],
"llama_cpp": {"mean", "median", "p99", "same_top"}}. --shardrun adds our own figures, for docs/PERFORMANCE.md.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import llama_cpp as lc
import numpy as np
import torch
import transformers

import make_smollm2

ROOM = pathlib.Path(__file__).resolve().parent / "quality"
CONTEXT = 500


def contexts_of(reader):
    tokenizer = make_smollm2.read_tokenizer(reader)
    passages = (ROOM / "text.txt").read_text().split("\n--------\n")
    ids = [tokenizer.encode(p).ids[:CONTEXT] for p in passages]
    assert len(ids) == 4 and all(len(i) == CONTEXT for i in ids), [len(i) for i in ids]
    return ids


def of_transformers(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def of_llama_cpp(path, contexts, kv):
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 2
    if kv == "f32":
        params.type_k = params.type_v = lc.GGML_TYPE_F32
        params.flash_attn_type = 0                       # which would make K and V f16 again
    for ids in contexts:
        context = lc.llama_init_from_model(model, params)
        batch = lc.llama_batch_init(512, 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert lc.llama_decode(context, batch) == 0
        yield np.stack([np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)).copy() for i in range(len(ids))])
        lc.llama_batch_free(batch)
        lc.llama_free(context)
    lc.llama_model_free(model)


def of_shardrun(program, path, contexts, words):
    with tempfile.TemporaryDirectory() as room:
        for ids in contexts:
            subprocess.run([program, "run", "--model", path, "--quiet", "--max-tokens", "1", "--logits", f"{room}/l.npy",
                            "--prompt-ids", ",".join(map(str, ids))] + words, check=True, stdout=subprocess.DEVNULL)
            yield np.load(f"{room}/l.npy")


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def compare(references, others):
    kl, same = [], []
    for a, b in zip(references, others):
        p, q = log_softmax(a), log_softmax(b)
        kl.append((np.exp(p) * (p - q)).sum(axis=-1))
        same.append(a.argmax(axis=-1) == b.argmax(axis=-1))
    kl, same = np.concatenate(kl), np.concatenate(same)
    return {"mean": float(kl.mean()), "median": float(np.median(kl)), "p99": float(np.percentile(kl, 99)),
            "same_top": float(same.mean())}


def show(name, r):
    print(f"{name:34} mean {r['mean']:.6f}  median {r['median']:.6f}  99 % {r['p99']:.6f}  same first token {100 * r['same_top']:.2f} %",
          flush=True)
    return r


def cpu_name():
    return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--shardrun")
    args = parser.parse_args()
    torch.set_num_threads(2)
    quiet = lc.llama_log_callback(lambda level, text, arg: None)
    lc.llama_log_set(quiet, None)
    llama, gguf_file = make_smollm2.read_model(args.model)
    contexts = contexts_of(gguf_file)
    references = [of_transformers(llama, ids) for ids in contexts]
    theirs = show("llama.cpp", compare(references, of_llama_cpp(args.model, contexts, "default")))
    show("llama.cpp, KV cache f32, no flash", compare(references, of_llama_cpp(args.model, contexts, "f32")))
    if args.shardrun:
        for words in ([], ["--kv-type", "f16"], ["--kv-type", "int8"], ["--set", "runtime.activations=f32"]):
            show(" ".join(["shardrun"] + words[-1:]), compare(references, of_shardrun(args.shardrun, args.model, contexts, words)))
    if args.write:
        versions = {"llama-cpp-python": lc.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
        golden = {"model": pathlib.Path(args.model).name, "versions": versions, "cpu": cpu_name(), "llama_cpp": theirs, "contexts": contexts}
        (ROOM / "golden.json").write_text(json.dumps(golden) + "\n")
