#!/usr/bin/env python3
"""llama.cpp's speed through its C interface, in a process of its own: llama_worker.py '{"model": ..., "jobs": [...], "split": "layer"}'

With "ik": true it is ik_llama.cpp's, through the package ik_llama_cpp, and "repack" and "merge" say whether weights are repacked as
they are loaded, and q, k and v merged.

compare.py starts it anew for each measurement, so that its model takes neither memory nor cores from the other side. A job is
{"sequences", "prompt", "new", "threads", "flash", "ubatch", "unified"}; one object with a result per job goes to stdout. As
llama-batched-bench does, the prompts of all sequences fill batches together. With "rpc": {"library", "addresses"} the layers run on RPC
workers.
"""
import ctypes
import importlib
import json
import os
import sys
import time

import numpy as np

BATCH = 2048
REQUEST = json.loads(sys.argv[1])
IK = REQUEST.get("ik", False)
lc = importlib.import_module("ik_llama_cpp._ctypes_api" if IK else "llama_cpp")


def be_silent():
    """Nothing on stdout or stderr but our own; the callback must outlive the library."""
    if IK:
        own = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        sys.stdout = os.fdopen(own, "w")
        return None
    silent = lc.llama_log_callback(lambda _level, _text, _user: None)
    lc.llama_log_set(silent, None)
    return silent


def synchronize(context):
    if IK:
        lc._lib.llama_synchronize(ctypes.c_void_p(context))
    else:
        lc.llama_synchronize(context)


def clear_cache(context):
    if IK:
        lc.llama_kv_cache_clear(context)
    else:
        lc.llama_memory_clear(lc.llama_get_memory(context), True)


class Batch:
    """llama_batch over arrays, filled without a loop in Python."""

    def __init__(self, size):
        self.token, self.pos = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self.count, self.logits = np.ones(size, np.int32), np.zeros(size, np.int8)
        self.seq = np.zeros(size, np.int32)
        self.seq_at = np.arange(size, dtype=np.uint64) * self.seq.itemsize + np.uint64(self.seq.ctypes.data)
        types = {name: kind for name, kind in lc.llama_batch._fields_}
        arrays = {"token": self.token, "pos": self.pos, "n_seq_id": self.count, "seq_id": self.seq_at, "logits": self.logits}
        self.c = lc.llama_batch(n_tokens=0, **{k: a.ctypes.data_as(types[k]) for k, a in arrays.items()})

    def decode(self, context, token, pos, seq, logits):
        n = len(token)
        self.token[:n], self.pos[:n], self.seq[:n], self.logits[:n] = token, pos, seq, logits
        self.c.n_tokens = n
        if lc.llama_decode(context, self.c):
            raise RuntimeError("llama_decode failed")


def make_context(model, job):
    params = lc.llama_context_default_params()
    each = (job["prompt"] + job["new"] + 255) // 256 * 256
    params.n_ctx = job["sequences"] * each
    params.n_batch, params.n_ubatch = BATCH, job["ubatch"]
    params.n_seq_max = job["sequences"]
    params.n_threads = params.n_threads_batch = job["threads"]
    if IK:
        params.flash_attn = bool(job["flash"])
    else:
        params.flash_attn_type = 1 if job["flash"] else 0
        params.kv_unified = bool(job["unified"])
    return lc.llama_init_from_model(model, params)


def measure(model, job):
    sequences, prompt, new = job["sequences"], job["prompt"], job["new"]
    context = make_context(model, job)
    if not context:
        return {"prefill": 0.0, "decode": 0.0}
    batch = Batch(BATCH)
    seq, pos = np.repeat(np.arange(sequences), prompt), np.tile(np.arange(prompt), sequences)
    token, last = 100 + (pos * 37 + seq) % 900, pos == prompt - 1

    def prefill(limit):
        for at in range(0, limit, BATCH):
            part = slice(at, min(at + BATCH, limit))
            batch.decode(context, token[part], pos[part], seq[part], last[part])
        synchronize(context)

    def decode(first, steps):
        every = np.arange(sequences)
        for step in range(first, first + steps):
            batch.decode(context, 100 + (step * 31 + every) % 900, np.full(sequences, prompt + step), every, 1)
        synchronize(context)

    prefill(min(len(token), max(prompt, job["ubatch"])) // prompt * prompt)   # warm up, with the largest graph
    clear_cache(context)
    begin = time.perf_counter()
    prefill(len(token))
    middle = time.perf_counter()
    decode(0, 1)                                     # not timed: memory for this graph is planned in the first step
    after = time.perf_counter()
    decode(1, new - 1)
    end = time.perf_counter()
    lc.llama_free(context)
    return {"prefill": sequences * prompt / (middle - begin),
            "decode": sequences * (new - 1) / (end - after) if new > 1 else 0.0}


def add_rpc(library, addresses):
    """Registers RPC workers as devices, which llama.cpp then puts all layers on."""
    rpc = ctypes.CDLL(library)
    rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
    register = lc.llama_cpp._lib.ggml_backend_register   # of the ggml that libllama itself has loaded
    register.argtypes, register.restype = [ctypes.c_void_p], None
    for address in addresses:
        server = rpc.ggml_backend_rpc_add_server(address.encode())
        if not server:
            sys.exit(f"no RPC worker at {address}")
        register(server)


def main():
    kept = be_silent()
    lc.llama_backend_init()
    if REQUEST.get("rpc"):
        add_rpc(**REQUEST["rpc"])
    params = lc.llama_model_default_params()
    if IK:
        params.repack_tensors, params.merge_qkv = REQUEST["repack"], REQUEST["merge"]
    else:
        params.split_mode = lc.LLAMA_SPLIT_MODE_TENSOR if REQUEST.get("split") == "tensor" else lc.LLAMA_SPLIT_MODE_LAYER
    model = lc.llama_model_load_from_file(REQUEST["model"].encode(), params)
    if not model:
        sys.exit(f"{REQUEST['model']}: the library cannot load it")
    results = [measure(model, job) for job in REQUEST["jobs"]]
    print(json.dumps({"results": results, "system": "" if IK else lc.llama_print_system_info().decode()}))
    return kept


if __name__ == "__main__":
    main()
