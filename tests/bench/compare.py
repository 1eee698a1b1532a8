#!/usr/bin/env python3
"""Speed beside a peer's, on the same file and cores: compare.py SHARDRUN MODEL.gguf [MODEL.gguf ...] [options]

The peer is llama.cpp, through the PyPI package llama-cpp-python built natively (CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary
:all: llama-cpp-python), each run in a process of its own; with --ik ik_llama.cpp, through the package ik-llama-cpp-python (where its
installation fails, IK_LLAMA_CPP_LIB_PATH names a libllama.so of its source and PYTHONPATH that source); or, with --self, shardrun
itself in another layout or another build.
Runs of the two are interleaved, so that a machine that changes its speed changes both. The table shows medians with lowest and
highest, their ratio, the share of the read bandwidth that decode reached, and the share of the cores that others took meanwhile:
where that is more than a twentieth, measure again. Not a test: nothing is held against a limit.

    compare.py build/release/shardrun a-Q4_0.gguf a-Q4_1.gguf --best     llama.cpp at the best settings for each case
    compare.py build/release/shardrun a-{}.gguf --types Q4_0,Q4_1        the same files
    compare.py build/release/shardrun a-Q4_0.gguf --self --ranks 2       two ranks of one thread against one rank of two threads
    compare.py build/release/shardrun a-Q4_0.gguf --self old/shardrun    two builds
    compare.py build/release/shardrun a-Q4_0.gguf --ranks 2 --rpc-server llama/bin/ggml-rpc-server
                                                    two ranks of one thread against two RPC workers of one thread (rpc_workers.py)

llama-bench decodes after an empty prompt, here it is after a prompt: --cases 1x1+64 gives its figure.
"""
import argparse
import contextlib
import json
import pathlib
import sys

import measured
import rpc_workers

CASES = "1x512+64,8x128+64,32x128+64,64x128+64"
PLAIN = {"bound": False, "split": "layer"}       # how a process of llama.cpp is started
TENSOR = {**PLAIN, "split": "tensor"}
MANY = 8                     # one cache for all of more sequences than this is slow beyond doubt: not tried


class Llama:
    """llama.cpp: F16 cache and run-time repacking, its defaults; the rest per case, probed once with --best."""

    ways = {"flash": (True, False), "unified": (False, True), "how": ({},)}   # what --best tries together first

    def __init__(self, threads, workers=None):
        self.name = f"llama.cpp, {threads} threads" if not workers else f"llama.cpp, {workers.count} RPC workers of 1 thread"
        self.threads, self.workers = threads, workers
        self.chosen = {}                           # (model, case) -> {"prefill": (job, how), "decode": (job, how)}

    def work(self, model, jobs, how):
        worker = pathlib.Path(__file__).with_name("llama_worker.py")
        request, watched = {"model": model, "jobs": jobs, **{k: v for k, v in how.items() if k != "bound"}}, []
        if self.workers:
            request["rpc"] = {"library": self.workers.library(), "addresses": self.workers.addresses}
            watched = self.workers.pids()
        env = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"} if how["bound"] else {}
        out, others = measured.run([sys.executable, str(worker), json.dumps(request)], watched, env)
        answer = json.loads(out)
        return answer["results"], others, answer["system"]

    def job(self, case, flash=True, ubatch=512, unified=False, threads=None):
        return {"sequences": case[0], "prompt": case[1], "new": case[2], "flash": flash, "ubatch": ubatch, "unified": unified,
                "threads": threads or self.threads}

    def choose(self, model, case, best):
        """With `best`: tries each setting that matters, a step at a time, keeping the fastest for prefill and for decode."""
        plain = {**PLAIN, **self.ways["how"][0]}
        default = (self.job(case), plain)
        found = {"prefill": (0.0, default), "decode": (0.0, default)}
        short = (case[0], case[1], min(case[2], 16))

        def try_all(jobs, how=plain):
            for job, result in zip(jobs, self.work(model, jobs, how)[0]):
                for key, (speed, _) in found.items():
                    if result[key] > speed:
                        found[key] = (result[key], (job, how))

        def best_jobs():
            jobs = [found[key][1][0] for key in found]
            return jobs if jobs[0] != jobs[1] else jobs[:1]

        if best:
            for more in self.ways["how"]:
                try_all([self.job(short, flash, 512, unified) for flash in self.ways["flash"]
                         for unified in (self.ways["unified"] if 1 < case[0] <= MANY else (False,))], {**plain, **more})
            try_all([{**found["prefill"][1][0], "ubatch": ubatch} for ubatch in (64, 128, 256, 2048)], found["prefill"][1][1])
            if self.workers:
                try_all([self.job(short)], TENSOR)
            else:
                for key in ("prefill", "decode"):
                    job, how = found[key][1]
                    try_all([job], {**how, "bound": True})
            if self.threads > 1:                   # where cores are shared, fewer threads wait less for each other
                try_all([{**job, "threads": self.threads - 1} for job in best_jobs()], found["decode"][1][1])
        self.chosen[model, case] = {key: ({**job, "new": case[2]}, how) for key, (_, (job, how)) in found.items()}
        return self.chosen[model, case]

    def run(self, model, case):
        settings = self.chosen[model, case]
        if settings["prefill"] == settings["decode"]:
            job, how = settings["decode"]
            (result,), others, system = self.work(model, [job], how)
        else:
            (first,), before, system = self.work(model, [{**settings["prefill"][0], "new": 1}], settings["prefill"][1])
            (second,), others, _ = self.work(model, [settings["decode"][0]], settings["decode"][1])
            result = {"prefill": first["prefill"], "decode": second["decode"]}
            others = max(others, before)
        if not all(result.values()):
            sys.exit(f"{model}: llama.cpp cannot run {describe(settings)}")
        return {**result, "others": others, "system": system}


class Ik(Llama):
    """ik_llama.cpp: with and without run-time repacking, and with q, k and v merged, which --best tries."""

    ways = {"flash": (True, False), "unified": (False,),
            "how": ({"ik": True, "repack": True, "merge": False}, {"ik": True, "repack": False, "merge": False},
                    {"ik": True, "repack": True, "merge": True})}

    def __init__(self, threads):
        super().__init__(threads)
        self.name = f"ik_llama.cpp, {threads} threads"


def describe(chosen):
    def one(job, how):
        return (f"flash {'on' if job['flash'] else 'off'}, ubatch {job['ubatch']}, "
                f"{'one cache' if job['unified'] else 'cache per sequence'}, {job['threads']} threads"
                f"{', bound' if how['bound'] else ''}{', tensor split' if how['split'] == 'tensor' else ''}"
                f"{', repacked' if how.get('repack') else ''}{', q k v merged' if how.get('merge') else ''}")

    return f"prefill: {one(*chosen['prefill'])}; decode: {one(*chosen['decode'])}"


def parse_case(text):
    sequences, rest = text.split("x")
    prompt, new = rest.split("+")
    return int(sequences), int(prompt), int(new)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shardrun")
    parser.add_argument("model", nargs="+", help="GGUF files; {} stands for each of --types")
    parser.add_argument("--types", help="as Q4_0,Q4_1: what {} in a model's name stands for")
    parser.add_argument("--cases", default=CASES, help=f"sequences x prompt + new tokens; default {CASES}")
    parser.add_argument("--threads", type=int, default=2, help="threads of the peer, and ours with one rank (default 2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=int, default=0, help="tries more of a run that others disturbed (default 0)")
    parser.add_argument("--best", action="store_true", help="probe llama.cpp's settings for each case and use the best")
    parser.add_argument("--ranks", type=int, default=1, help="run ours with mpirun on this many ranks of one thread each")
    parser.add_argument("--axis", choices=("tp", "pp"), default="tp", help="what the ranks share: layers' insides or layers")
    parser.add_argument("--mpirun", default="mpirun", help="mpirun with options, as \"mpirun --oversubscribe\"")
    parser.add_argument("--self", nargs="?", const="", metavar="SHARDRUN", dest="itself",
                        help="the peer is this shardrun (default: the same) on one rank with --threads threads")
    parser.add_argument("--rpc-server", metavar="PATH", help="the peer is llama.cpp with --ranks RPC workers of one thread each")
    parser.add_argument("--ik", action="store_true", help="the peer is ik_llama.cpp")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the recipe, for ours only")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    args = parser.parse_args()
    args.model = [name.replace("{}", kind) for name in args.model
                  for kind in (args.types.split(",") if args.types and "{}" in name else [""])]
    args.cases = [parse_case(text) for text in args.cases.split(",")]
    return args


def make_peer(args, stack):
    if args.itself is not None:
        peer = measured.Ours(args.itself or args.shardrun, args.threads)
        peer.name = f"{args.itself or 'the same shardrun'}, {peer.name}"
        return peer
    if args.rpc_server:
        return Llama(1, stack.enter_context(rpc_workers.Workers(args.rpc_server, args.ranks)))
    return Ik(args.threads) if args.ik else Llama(args.threads)


def compare(args, ours, peer):
    print(f"ours: {ours.name}; peer: {peer.name}; {args.rounds} rounds\n{measured.HEAD}", flush=True)
    rows, machine = [], ""
    for model in args.model:
        for case in args.cases:
            settings = describe(peer.choose(model, case, args.best)) if args.itself is None else None
            mine, theirs = measured.interleave([lambda: ours.run(model, case), lambda: peer.run(model, case)], args.rounds,
                                               args.patience)
            row = measured.compared(model, case, mine, theirs)
            row["peer_settings"] = settings
            rows.append(row)
            measured.print_row(row)
            if args.best and settings:
                print(f"{'':>24} {settings}", flush=True)
            machine = f"{mine[0]['cpu']}, kernels {mine[0]['kernels']}, reads " + \
                      f"{max(r['limits']['read_gbps'] for r in mine):.1f} GB/s"
            if args.json:
                measured.write_json(args.json, ours=ours.name, peer=peer.name, machine=machine, rows=rows)
    print(machine)
    measured.print_verdict(rows)


def main():
    args = parse()
    extra = [word for pair in args.set for word in ("--set", pair)]
    ours = measured.Ours(args.shardrun, args.threads, args.ranks, args.axis, args.mpirun, extra)
    with contextlib.ExitStack() as stack:
        compare(args, ours, make_peer(args, stack))


if __name__ == "__main__":
    main()
