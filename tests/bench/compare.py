#!/usr/bin/env python3
"""Speed beside llama.cpp's, on the same file and cores: compare.py SHARDRUN MODEL.gguf [options]

Wants the PyPI package llama-cpp-python (built natively: CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary :all:
llama-cpp-python). Runs of the two are interleaved, so that a machine that changes its speed changes both; the medians and their
ratio are printed as a table. Not a test: nothing is held against a limit.
"""
import argparse
import json
import statistics
import subprocess
import time

import llama_cpp as lc


def run_ours(args, sequences, prompt, new):
    command = [args.shardrun, "bench", "--model", args.model, "--threads", str(args.threads), "--json", "--quiet",
               "--sequences", str(sequences), "--prompt-tokens", str(prompt), "--new-tokens", str(new)]
    row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return row["rows"][0]["prefill_tokens_per_s"], row["rows"][0]["decode_tokens_per_s"], row


class Llama:
    """llama.cpp through its C interface, with many sequences in one context."""

    def __init__(self, path, threads):
        lc.llama_backend_init()
        params = lc.llama_model_default_params()
        load = getattr(lc, "llama_model_load_from_file", None) or lc.llama_load_model_from_file
        self.model = load(path.encode(), params)
        self.threads = threads

    def run(self, sequences, prompt, new):
        params = lc.llama_context_default_params()
        params.n_ctx = sequences * (prompt + new + 32)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self.threads
        make = getattr(lc, "llama_init_from_model", None) or lc.llama_new_context_with_model
        context = make(self.model, params)
        batch = lc.llama_batch_init(512, 0, 1)

        def put(items):                                  # (token, position, sequence, wants logits)
            batch.n_tokens = len(items)
            for i, (token, pos, seq, logits) in enumerate(items):
                batch.token[i], batch.pos[i] = token, pos
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
                batch.logits[i] = logits
            if lc.llama_decode(context, batch):
                raise RuntimeError("llama_decode failed")

        def once():
            begin = time.perf_counter()
            for seq in range(sequences):
                items = [(100 + (i * 37 + seq) % 900, i, seq, i == prompt - 1) for i in range(prompt)]
                for at in range(0, prompt, 512):
                    put(items[at:at + 512])
            lc.llama_synchronize(context)
            middle = time.perf_counter()
            for step in range(new - 1):
                put([(100 + (step * 31 + seq) % 900, prompt + step, seq, True) for seq in range(sequences)])
            lc.llama_synchronize(context)
            end = time.perf_counter()
            return sequences * prompt / (middle - begin), sequences * (new - 1) / (end - middle)

        put([(100, 0, 0, True)])                         # warm up
        memory = getattr(lc, "llama_get_memory", None)
        if memory:
            lc.llama_memory_clear(memory(context), True)
        else:
            lc.llama_kv_self_clear(context)
        result = once()
        lc.llama_batch_free(batch)
        lc.llama_free(context)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shardrun")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", default="8,32")
    args = parser.parse_args()
    llama = Llama(args.model, args.threads)
    cases = [(1, 512, 64)] + [(int(n), 128, 64) for n in args.sequences.split(",") if n]
    cpu = ""
    print(f"{'sequences':>9} {'prompt':>6} {'new':>4} | {'prefill ours':>12} {'llama.cpp':>10} {'ratio':>6} | "
          f"{'decode ours':>12} {'llama.cpp':>10} {'ratio':>6}")
    for sequences, prompt, new in cases:
        ours, theirs = [], []
        for _ in range(args.rounds):
            prefill, decode, whole = run_ours(args, sequences, prompt, new)
            ours.append((prefill, decode))
            theirs.append(llama.run(sequences, prompt, new))
            cpu = f"{whole['cpu']}, kernels {whole['kernels']}, reads {whole['limits']['read_gbps']:.1f} GB/s"
        a = [statistics.median(x[i] for x in ours) for i in (0, 1)]
        b = [statistics.median(x[i] for x in theirs) for i in (0, 1)]
        print(f"{sequences:>9} {prompt:>6} {new:>4} | {a[0]:>12.1f} {b[0]:>10.1f} {a[0] / b[0]:>6.2f} | "
              f"{a[1]:>12.1f} {b[1]:>10.1f} {a[1] / b[1]:>6.2f}", flush=True)
    print(cpu)


if __name__ == "__main__":
    main()
