#!/usr/bin/env python3
"""Many requests at once beside one by one, and beside llama.cpp's server: batch_compare.py SHARDRUN MODEL.gguf [options]

The same requests, as token ids cut from this tree's documents, greedy, every answer as long as is asked (end of text ignored), so that
all do the same work on the same cores:

    many together   shardrun batch, with --sequences of them at work at once
    one by one      shardrun batch with runtime.sequences=1
    llama-server    with --llama-server PATH: continuous batching and its other defaults, as many connections as slots. Slots, flash
                    attention, one cache for all or one per slot, ubatch, bound and passively waiting threads are probed and the best taken;
                    --slots and --flash say what is tried, and with a single way left nothing is probed (then --server-env)

Lengths are spread evenly over their range, those of prompts and answers independent of each other, in such a way (the R2 sequence)
that the first N of them are spread as evenly as all. So the two slow ways may run the first --sample N of the requests only, and
tokens per second are compared. Their runs are cut in two, one half before and one after the run of many, so that a machine that
changes its speed changes all. Of a sample on the server the end, when slots stand empty, is left out if that makes it faster. Times
of shardrun are those of the whole command, loading and the journal's fsyncs included; the server's begin when it is ready.

    batch_compare.py build/release/shardrun MODEL.gguf --llama-server PATH                          1,000 requests
    batch_compare.py build/release/shardrun MODEL.gguf --llama-server PATH --prompts-up-to 2000     with long prompts
    batch_compare.py build/release/shardrun MODEL.gguf --llama-server PATH --sample 100             in a third of the time
    batch_compare.py build/release/shardrun MODEL.gguf --requests 100 --sequences 16,64             a first look, ours alone

CPU seconds are those of all threads, waiting ones that spin included: a ratio of these says more than one of times where others use
the cores, too. Not a test: nothing is held against a limit.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import llama_server
import measured

TREE = pathlib.Path(__file__).resolve().parents[2]
LEAST_PROMPT, MOST_ANSWER = 10, 500
BOUND, PASSIVE = {"OMP_PROC_BIND": "true"}, {"OMP_WAIT_POLICY": "passive"}     # the latter where others use the cores
R2 = 1.32471795724474602596                       # Roberts 2018: x^3 = x + 1; its powers spread points of the plane evenly


def text_ids(shardrun, model):
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted((TREE / "docs").glob("*.md")))
    done = subprocess.run([shardrun, "inspect", model, "--tokenize"], input=json.dumps(text) + "\n", capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def make_requests(n, prompts_up_to, ids, seed):
    """Prompts begin at different places of the text, so hardly any two begin alike."""
    rng, requests = random.Random(seed), []
    x, y = rng.random(), rng.random()
    places = [i for _ in range(n // (len(ids) - prompts_up_to) + 1) for i in rng.sample(range(len(ids) - prompts_up_to),
                                                                                       len(ids) - prompts_up_to)]
    for i in range(n):
        x, y = (x + 1 / R2) % 1, (y + 1 / R2 ** 2) % 1
        length = LEAST_PROMPT + int(x * (prompts_up_to - LEAST_PROMPT + 1))
        requests.append({"prompt": ids[places[i]:places[i] + length], "max_tokens": 1 + int(y * MOST_ANSWER)})
    return requests


class Ours:
    def __init__(self, args, sequences):
        self.sequences = sequences
        self.name = f"shardrun, {sequences} together" if sequences > 1 else "shardrun, one by one"
        self.command = [args.shardrun, "batch", "--model", args.model, "--threads", str(args.threads), "--quiet",
                        "--set", f"runtime.sequences={sequences}", "--set", f"runtime.context={args.context}"]
        self.command += [word for pair in args.set for word in ("--set", pair)]

    def run(self, requests):
        with tempfile.TemporaryDirectory(dir=".") as d:       # where fsync is what it is for the user's files
            source, result = os.path.join(d, "in.jsonl"), os.path.join(d, "out.jsonl")
            with open(source, "w", encoding="utf-8") as f:
                for r in requests:
                    f.write(json.dumps({**r, "ignore_eos": True, "temperature": 0}) + "\n")
            before, begin = os.times(), time.monotonic()
            _, others = measured.run([*self.command, "--input", source, "--output", result])
            seconds, after = time.monotonic() - begin, os.times()
            with open(result, encoding="utf-8") as f:
                lines = [json.loads(line) for line in f]
        for line, r in zip(lines, requests, strict=True):
            if line["error"] or line["response"]["body"]["usage"]["completion_tokens"] != r["max_tokens"]:
                sys.exit(f"{self.name}: not the answer that was asked for: {json.dumps(line)[:300]}")
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return {"seconds": seconds, "tokens": sum(r["max_tokens"] for r in requests), "others": others, "cpu_s": cpu, "requests": requests}


class Theirs:
    def __init__(self, args):
        self.args, self.settings = args, None

    def choose(self, requests):
        """Slots with and without flash attention first, then what else may matter at the best of these."""
        args = self.args
        ways = [{"slots": s, "flash": f, "unified": False, "ubatch": 512, "env": args.server_env} for s in args.slots for f in args.flash]
        self.settings, best = ways[0], 0.0
        if len(ways) > 1:
            print("llama-server, probed (answer tokens/s):", flush=True)
            self.settings, best = max(((w, self.probe(w, requests)) for w in ways), key=lambda p: p[1])
            for change in ({"unified": True}, {"ubatch": 128}, {"ubatch": 2048}, {"env": BOUND}, {"env": PASSIVE}):
                way = {**self.settings, **change, "env": {**self.settings["env"], **change.get("env", {})}}
                rate = self.probe(way, requests)
                if rate > best:
                    self.settings, best = way, rate
        self.name = f"llama-server, {describe(self.settings)}"

    def server(self, way):
        return llama_server.Server(self.args.llama_server, self.args.model, self.args.threads, {**way, "context": self.args.context})

    def probe(self, way, requests):
        with self.server(way) as s:
            rate = s.probe(requests, self.args.probe_seconds, self.args.seed)
        print(f"    {describe(way):<60} {rate:8.1f}", flush=True)
        return rate

    def run(self, requests):
        with self.server(self.settings) as s:
            return {**s.answer_all(requests), "requests": requests}


def describe(way):
    return (f"{way['slots']} slots, flash {'on' if way['flash'] else 'off'}{', one cache' if way['unified'] else ''}"
            f"{', ubatch %d' % way['ubatch'] if way['ubatch'] != 512 else ''}{''.join(', %s=%s' % pair for pair in way['env'].items())}")


def row(name, parts, all_requests):
    """Parts of one way's work, added up. A whole run counts its end, in a sample empty slots are not held against the server."""
    requests = [r for p in parts for r in p["requests"]]
    seconds, tokens = sum(p["seconds"] for p in parts), sum(p["tokens"] for p in parts)
    rate = tokens / seconds
    busy = statistics.harmonic_mean([p["busy_rate"] for p in parts]) if "busy_rate" in parts[0] else 0
    if len(requests) < all_requests:
        rate = max(rate, busy)
    prompt = sum(len(r["prompt"]) for r in requests)
    return {"name": name, "requests": len(requests), "seconds": seconds, "answer_tokens": tokens, "prompt_tokens": prompt,
            "answer_tokens_per_s": rate, "tokens_per_s": rate * (1 + prompt / tokens), "busy_tokens_per_s": busy,
            "cpu_ms_per_token": 1e3 * sum(p["cpu_s"] for p in parts) / tokens, "others_share_of_cores": max(p["others"] for p in parts)}


def print_rows(rows, first):
    print(f"{'':<52} {'requests':>8} {'seconds':>8} {'answer tok/s':>12} {'all tok/s':>10} {'CPU ms/tok':>10} {'others':>6}")
    for r in rows:
        print(f"{r['name']:<52} {r['requests']:>8} {r['seconds']:>8.1f} {r['answer_tokens_per_s']:>12.1f} {r['tokens_per_s']:>10.1f} "
              f"{r['cpu_ms_per_token']:>10.2f} {r['others_share_of_cores']:>6.0%}")
    for r in rows[first:]:
        for many in rows[:first]:
            print(f"{many['name']} / {r['name']}: {many['answer_tokens_per_s'] / r['answer_tokens_per_s']:.2f} "
                  f"(by CPU time {r['cpu_ms_per_token'] / many['cpu_ms_per_token']:.2f})")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shardrun")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--sample", type=int, metavar="N", help="the first N only, one by one and on the server")
    parser.add_argument("--prompts-up-to", type=int, default=200, metavar="TOKENS")
    parser.add_argument("--sequences", default="64", help="of ours at work together; several, with commas, make several rows")
    parser.add_argument("--skip-alone", action="store_true", help="not one by one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", default="1,4,8,16,32,64", help="of the server, tried")
    parser.add_argument("--flash", default="on,off", help="of the server, tried")
    parser.add_argument("--server-env", action="append", default=[], metavar="NAME=VALUE", help="for the server's process")
    parser.add_argument("--probe-seconds", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the recipe, for ours")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    args = parser.parse_args()
    args.sample = min(args.sample or args.requests, args.requests)
    args.server_env = dict(pair.split("=", 1) for pair in args.server_env)
    args.slots = [int(s) for s in args.slots.split(",")]
    args.flash = [word == "on" for word in args.flash.split(",")]
    args.context = (args.prompts_up_to + MOST_ANSWER + 31) // 32 * 32
    return args


def main():
    args = parse()
    requests = make_requests(args.requests, args.prompts_up_to, text_ids(args.shardrun, args.model), args.seed)
    sample = requests[:args.sample]
    print(f"{args.requests} requests: prompts {LEAST_PROMPT}-{args.prompts_up_to} (mean {statistics.mean(len(r['prompt']) for r in requests):.1f}), "
          f"answers 1-{MOST_ANSWER} (mean {statistics.mean(r['max_tokens'] for r in requests):.1f}) tokens", flush=True)
    many = [Ours(args, int(s)) for s in args.sequences.split(",")]
    slow = [] if args.skip_alone else [Ours(args, 1)]
    if args.llama_server:
        theirs = Theirs(args)
        theirs.choose(requests)
        slow.append(theirs)
    halves = [sample[0::2], sample[1::2]]
    first = [side.run(halves[0]) for side in slow]
    rows = [row(side.name, [side.run(requests)], args.requests) for side in many]
    second = [side.run(halves[1]) for side in reversed(slow)]
    rows += [row(side.name, [a, b], args.requests) for side, a, b in zip(slow, first, reversed(second))]
    print_rows(rows, len(many))
    if args.sample < args.requests:
        print(f"Of the slow ways the first {args.sample} requests (prompts {rows[-1]['prompt_tokens'] / args.sample:.1f}, answers "
              f"{rows[-1]['answer_tokens'] / args.sample:.1f} on average).")
    measured.print_verdict(rows)
    if args.json:
        measured.write_json(args.json, requests=args.requests, prompts_up_to=args.prompts_up_to, rows=rows)


if __name__ == "__main__":
    main()
