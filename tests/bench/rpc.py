#!/usr/bin/env python3
"""Two ranks of one thread beside llama.cpp with two RPC workers of one thread, on one machine:

    rpc.py SHARDRUN RPC_SERVER LLAMA_BENCH MODEL.gguf [MODEL.gguf ...] [options]

The two programs of llama.cpp come from its sources (the sdist of the PyPI package llama-cpp-python carries them in vendor/llama.cpp):
cmake -DGGML_RPC=ON -DGGML_NATIVE=ON, targets ggml-rpc-server (once rpc-server) and llama-bench. The workers listen on loopback and
stay for all rounds; only their model is loaded anew, and that is not timed. Runs of the two sides are interleaved. llama.cpp runs
with and without flash attention and the better counts, for prefill and decode apart; ours splits each layer (tp). Both decode
after a prompt of each of --depths tokens (llama-bench's usual figure is that at depth 0, where ours has a prompt of one token).
Not a test: nothing is held against a limit.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

import measured


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Workers:
    """RPC workers on loopback ports, one thread each, bound to a core each; ended with the block."""

    def __init__(self, server, count):
        self.server, self.count = server, count
        self.processes, self.addresses = [], []

    def start(self, core):
        port = free_port()
        bound = {"preexec_fn": lambda: os.sched_setaffinity(0, {core})} if core is not None else {}
        process = subprocess.Popen([self.server, "-H", "127.0.0.1", "-p", str(port), "-t", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **bound)
        self.processes.append(process)
        until = time.monotonic() + 30
        while True:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"{self.server} does not listen on port {port} (status {process.returncode})")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        self.addresses.append(f"127.0.0.1:{port}")

    def __enter__(self):
        cores = sorted(os.sched_getaffinity(0))
        try:
            for i in range(self.count):
                self.start(cores[i] if len(cores) >= self.count else None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pids(self):
        return [p.pid for p in self.processes]


def run_theirs(bench, workers, model, prompt, new, depth, repeats):
    command = [bench, "-m", model, "--rpc", ",".join(workers.addresses), "-ngl", "99", "-t", "1", "-fa", "0,1",
               "-r", str(repeats), "-o", "json"]
    results = {}
    others = 0.0
    for key, words in (("prefill", ["-p", str(prompt), "-n", "0"]), ("decode", ["-p", "0", "-n", str(new), "-d", str(depth)])):
        out, share = measured.run([*command, *words], workers.pids())
        results[key] = max(row["avg_ts"] for row in json.loads(out))
        others = max(others, share)
    return {**results, "others": others}


def run_ours(ours, model, prompt, new, depth):
    """Prefill of `prompt` tokens; decode after `depth`, which is the same run when the two are equal."""
    first = ours.run(model, (1, prompt, new))
    if depth == prompt:
        return first
    second = ours.run(model, (1, max(depth, 1), new))
    return {**second, "prefill": first["prefill"], "others": max(first["others"], second["others"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shardrun")
    parser.add_argument("rpc_server")
    parser.add_argument("llama_bench")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--depths", default="0,512", help="tokens before the decoded ones (default 0,512)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks, and workers (default 2)")
    parser.add_argument("--axis", choices=("tp", "pp"), default="tp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="llama-bench's repetitions in a round; shardrun bench has 3")
    parser.add_argument("--patience", type=int, default=0, help="tries more of a run that others disturbed (default 0)")
    parser.add_argument("--mpirun", default="mpirun", help="mpirun with options, as \"mpirun --oversubscribe\"")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    args = parser.parse_args()
    ours = measured.Ours(args.shardrun, 1, args.ranks, args.axis, args.mpirun)
    peer = f"llama.cpp, {args.ranks} RPC workers of one thread"
    print(f"ours: {ours.name}, one thread each; peer: {peer}; {args.rounds} rounds; column prompt: tokens before the decoded ones, "
          f"prefill is of {args.prompt}\n{measured.HEAD}", flush=True)
    rows = []
    with Workers(args.rpc_server, args.ranks) as workers:
        for model in args.model:
            for depth in map(int, args.depths.split(",")):
                mine, theirs = measured.interleave(
                    [lambda: run_ours(ours, model, args.prompt, args.new, depth),
                     lambda: run_theirs(args.llama_bench, workers, model, args.prompt, args.new, depth, args.repeats)],
                    args.rounds, args.patience)
                rows.append(measured.compared(model, (1, depth, args.new), mine, theirs))
                measured.print_row(rows[-1])
    print(f"{mine[0]['cpu']}, kernels {mine[0]['kernels']}")
    measured.print_verdict(rows)
    if args.json:
        measured.write_json(args.json, ours=ours.name, peer=peer, prefill_tokens=args.prompt, machine=mine[0]["cpu"], rows=rows)


if __name__ == "__main__":
    main()
