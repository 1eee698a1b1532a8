"""What the comparing scripts share: commands run one at a time, with the share of the cores that others took meanwhile."""
import json
import os
import statistics
import subprocess
import sys
import time

BUSY_FIELDS = (0, 1, 2, 5, 6, 7)                 # user, nice, system, irq, softirq, steal: of /proc/stat's first line
DISTURBED = 0.05                                  # others' share of the cores above which a run counts as disturbed


class Disturbance:
    """Share of the cores' time that went to neither this process's ended children nor the processes `watched`.

    Threads that wait for each other lose far more to a busy machine than that share, and each program loses in its own way, so figures
    of a busy machine say nothing: every table carries this share.
    """

    def __init__(self, watched=()):
        self.watched = watched
        self.cores = os.cpu_count()
        self.hertz = os.sysconf("SC_CLK_TCK")
        self.begin = self.read()

    def read(self):
        with open("/proc/stat", encoding="ascii") as f:
            fields = f.readline().split()[1:]
        own = os.times()
        mine = own.user + own.system + own.children_user + own.children_system
        for pid in self.watched:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                after = f.read().rpartition(")")[2].split()
            mine += (int(after[11]) + int(after[12])) / self.hertz
        return sum(int(fields[i]) for i in BUSY_FIELDS) / self.hertz, mine, time.monotonic()

    def share(self):
        busy, mine, now = (after - before for after, before in zip(self.read(), self.begin))
        return max(0.0, (busy - mine) / (self.cores * now)) if now > 0 else 0.0


def run(command, watched=(), env=None):
    """(stdout, others' share of the cores while it ran); ends the script when the command fails."""
    meter = Disturbance(watched)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stderr[-2000:]}{done.stdout[-500:]}")
    return done.stdout, meter.share()


class Ours:
    """shardrun bench in one layout. `command` is what a user would type: shardrun binds its threads itself, mpirun its ranks."""

    def __init__(self, shardrun, threads, ranks=1, axis="tp", mpirun="mpirun", extra=()):
        self.command = [shardrun, "bench", "--json", "--quiet"]
        if ranks > 1:
            self.command = [*mpirun.split(), "-n", str(ranks), *self.command, f"--{axis}", str(ranks)]
        self.command += ["--threads", str(1 if ranks > 1 else threads), *extra]
        self.name = f"{ranks} ranks, {axis}" if ranks > 1 else f"{threads} thread{'s' if threads > 1 else ''}"

    def run(self, model, case):
        sequences, prompt, new = case
        out, others = run([*self.command, "--model", model, "--sequences", str(sequences), "--prompt-tokens", str(prompt),
                           "--new-tokens", str(new)])
        whole = json.loads(out)
        row = whole["rows"][0]
        if not row["prefill_tokens_per_s"] or not row["decode_tokens_per_s"]:
            sys.exit(f"{' '.join(self.command)}: nothing was measured")
        return {"prefill": row["prefill_tokens_per_s"], "decode": row["decode_tokens_per_s"], "others": others,
                "share": row.get("share_of_read_bandwidth", 0), "cpu": whole["cpu"], "kernels": whole["kernels"],
                "limits": whole["limits"]}


def undisturbed(run_once, patience):
    """One result of run_once(); while others disturb it, up to `patience` more tries, of which the quietest counts."""
    best = run_once()
    for _ in range(patience):
        if best["others"] <= DISTURBED:
            break
        again = run_once()
        best = again if again["others"] < best["others"] else best
    return best


def summary(results, key):
    values = [r[key] for r in results]
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "values": values}


def interleave(sides, rounds, patience):
    """Results of each side's function, run in turns; every second round in the other order."""
    results = [[] for _ in sides]
    for turn in range(rounds):
        order = range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides)))
        for i in order:
            results[i].append(undisturbed(sides[i], patience))
    return results


HEAD = (f"{'model':>24} {'seq':>4} {'prompt':>6} {'new':>4} | {'prefill':>8} {'(spread)':>15} {'peer':>8} {'(spread)':>15} "
        f"{'ratio':>6} | {'decode':>8} {'(spread)':>15} {'of read':>7} {'peer':>8} {'(spread)':>15} {'ratio':>6} | {'others':>6}")


def compared(model, case, ours, theirs):
    """One row of the table as an object."""
    row = {"model": model, "sequences": case[0], "prompt_tokens": case[1], "new_tokens": case[2],
           "share_of_read_bandwidth": statistics.median(r.get("share", 0) for r in ours),
           "others_share_of_cores": max(r["others"] for r in ours + theirs)}
    for key in ("prefill", "decode"):
        a, b = summary(ours, key), summary(theirs, key)
        row[key] = {"ours": a, "peer": b, "ratio": a["median"] / b["median"] if b["median"] > 0 else 0}
    return row


def print_row(row):
    def side(s):
        return f"{s['median']:>8.1f} {'(%.0f-%.0f)' % (s['low'], s['high']):>15}"

    p, d = row["prefill"], row["decode"]
    name = os.path.basename(row["model"]).removesuffix(".gguf")[-24:]
    print(f"{name:>24} {row['sequences']:>4} {row['prompt_tokens']:>6} {row['new_tokens']:>4} | {side(p['ours'])} {side(p['peer'])} "
          f"{p['ratio']:>6.2f} | {side(d['ours'])} {row['share_of_read_bandwidth']:>6.0%} {side(d['peer'])} {d['ratio']:>6.2f} | "
          f"{row['others_share_of_cores']:>6.0%}", flush=True)


def print_verdict(rows):
    worst = max(row["others_share_of_cores"] for row in rows)
    if worst > DISTURBED:
        print(f"DISTURBED: others took up to {worst:.0%} of the cores during these runs; measure again on a quiet machine.")


def write_json(path, **content):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1)
        f.write("\n")
