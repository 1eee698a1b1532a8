#!/usr/bin/env python3
"""Decode with and without runtime.speculate: speculate.py SHARDRUN MODEL [--rounds N] [--new-tokens N] [--sequences N] [options of shardrun]

One prompt that the answer repeats (code, to be written again), one that it repeats in part, and prose that it does not. Runs are
interleaved; the table shows the medians, their ratio, the tokens accepted in a step with drafts, and the share of the cores that others
took meanwhile: where that is more than a twentieth, measure again. Tokens and digests of the two must be the same, or the script fails.
Not a test: nothing is held against a limit.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import measured

FUNCTION = "int {0}(int a, int b)\n{{\n\treturn a {1} b;\n}}\n\n"
CODE = "".join(FUNCTION.format(name, sign) for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")))
SEA = ("The sea was calm that morning. The fishermen went out before sunrise, and the women stayed on the beach to mend the nets. ")
PROMPTS = {
    "code again": f"A file:\n\n{CODE}The same file once more:\n\n{CODE[:60]}",
    "in part": f"{SEA}A summary of this story:",
    "prose": "The history of the city began when a small group of merchants",
}


def decode(args, path, word):
    out, others = measured.run([args.shardrun, "run", "--json", "--quiet", "--model", args.model, "--prompt-file", str(path), "--max-tokens",
                                str(args.new_tokens), "--set", f"runtime.speculate={word}", "--set", "generation.ignore_eos=true",
                                "--set", f"generation.n={args.sequences}", *args.more])
    whole = json.loads(out)
    return {"decode": whole["timings"]["decode_tokens_per_s"], "others": others, "speculation": whole["speculation"],
            "results": [(r["tokens"], r["logits_digest"]) for r in whole["results"]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shardrun")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--sequences", type=int, default=1, help="answers to the prompt")
    args, args.more = parser.parse_known_args()
    print(f"{'':12} {'off':>8} {'ngram':>8} {'ratio':>6} {'best':>6} {'accepted a step':>16} {'of drafted':>11} {'others':>7}")
    for name, text in PROMPTS.items():
        runs = {"off": [], "ngram": []}
        with tempfile.TemporaryDirectory() as room:
            path = pathlib.Path(room) / "prompt"
            path.write_text(text, encoding="utf-8")
            for _ in range(args.rounds):
                for word, done in runs.items():
                    done.append(decode(args, path, word))
        if any(r["results"] != runs["off"][0]["results"] for done in runs.values() for r in done):
            sys.exit(f"{name}: not the same tokens and bits")
        off, ngram = (statistics.median(r["decode"] for r in done) for done in runs.values())
        best = [max(r["decode"] for r in done) for done in runs.values()]
        s = runs["ngram"][0]["speculation"]
        others = max(r["others"] for done in runs.values() for r in done)
        print(f"{name:12} {off:8.1f} {ngram:8.1f} {ngram / off:6.2f} {best[1] / best[0]:6.2f} {s['accepted_per_step']:16.2f} "
              f"{s['accepted'] / max(1, s['drafted']):10.0%} {others:7.0%}")


if __name__ == "__main__":
    main()
