"""llama.cpp's llama-server under a closed loop of requests: as many connections as it has slots, each sending its next request as soon as
it has the answer to the last."""
import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time

import measured

GREEDY = {"temperature": 0, "samplers": ["top_k"], "top_k": 1}   # the cheapest way: nothing else looks at the vocabulary
PATIENCE_S = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running llama-server; settings: slots, context (tokens of one sequence), flash, unified, ubatch, and env, of its process."""

    def __init__(self, path, model, threads, settings):
        self.slots, self.port = settings["slots"], free_port()
        self.command = [path, "-m", model, "--host", "127.0.0.1", "--port", str(self.port), "-t", str(threads), "-np", str(self.slots),
                        "-c", str((settings["context"] + 255) // 256 * 256 * self.slots), "-fa", "on" if settings["flash"] else "off",
                        "-kvu" if settings["unified"] else "-no-kvu", "-ub", str(settings["ubatch"]),
                        "-b", str(max(2048, settings["ubatch"])), "--no-webui"]
        self.env = {**os.environ, **settings["env"]}

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + PATIENCE_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.log.seek(0)
                said = self.log.read()[-2000:].decode(errors="replace")
                raise SystemExit(f"{' '.join(self.command)}\ndoes not answer:\n{said}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.log.close()

    def is_ready(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            c.request("GET", "/health")
            return c.getresponse().status == 200
        except OSError:
            return False
        finally:
            c.close()

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8", errors="replace") as f:
            after = f.read().rpartition(")")[2].split()
        return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def post(self, r, **more):
        """The response to a request, on a connection of its own: the server closes them after some time or number."""
        text = json.dumps({"prompt": r["prompt"], "n_predict": r["max_tokens"], "ignore_eos": True, **GREEDY, **more})
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        try:
            c.request("POST", "/completion", text, {"Content-Type": "application/json"})
            response = c.getresponse()
            if response.status != 200:
                raise SystemExit(f"llama-server: status {response.status}: {response.read()[:300].decode(errors='replace')}")
            yield response
        finally:
            c.close()

    def send(self, r):
        with self.post(r) as response:
            return json.loads(response.read())

    def stream(self, r, times, stop):
        """Notes the time of each token."""
        with self.post(r, stream=True) as response:
            while (line := response.readline()) and not stop.is_set():
                if line.startswith(b"data: ") and b'"stop":false' in line:
                    times.append(time.monotonic())

    def in_parallel(self, worker):
        """Runs worker(i) in as many threads as there are slots; raises what one of them raised."""
        failed = []

        def guarded(i):
            try:
                worker(i)
            except BaseException as e:            # pylint: disable=broad-except
                failed.append(e)

        threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(self.slots)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise failed[0]

    def answer_all(self, requests):
        """Answers all requests. {"seconds", "tokens", "others", "cpu_s", "busy_rate"}: busy_rate is the answer tokens per second up to when
        the first connection found no more requests, so without the end, when slots stand empty."""
        lock, queue, done, ran_dry = threading.Lock(), list(reversed(requests)), [], []

        def worker(_):
            while True:
                with lock:
                    r = queue.pop() if queue else None
                if r is None:
                    break
                answer = self.send(r)
                done.append((time.monotonic(), answer["timings"]["predicted_ms"] / 1000, answer["tokens_predicted"], r))
            ran_dry.append(time.monotonic())

        meter, cpu, begin = measured.Disturbance([self.process.pid]), self.cpu_s(), time.monotonic()
        self.in_parallel(worker)
        seconds, dry = time.monotonic() - begin, min(ran_dry)
        for _, _, tokens, r in done:
            if tokens != r["max_tokens"]:
                raise SystemExit(f"llama-server: {tokens} tokens came, {r['max_tokens']} were asked for")
        before = sum(n * min(1.0, max(0.0, (dry - (end - took)) / took)) if took > 0 else n * (end <= dry) for end, took, n, _ in done)
        return {"seconds": seconds, "tokens": sum(n for _, _, n, _ in done), "others": meter.share(), "cpu_s": self.cpu_s() - cpu,
                "busy_rate": before / (dry - begin)}

    def probe(self, requests, seconds, seed):
        """Answer tokens per second over some seconds of the steady state: from when every connection has had a token. The first answers are
        cut so that they end as those do that are under way at any moment."""
        rng, stop, times = random.Random(seed), threading.Event(), [[] for _ in range(self.slots)]
        order = [rng.sample(requests, len(requests)) for _ in range(self.slots)]
        begun = rng.choices(requests, [r["max_tokens"] for r in requests], k=self.slots)

        def worker(i):
            r, turn = {**begun[i], "max_tokens": rng.randint(1, begun[i]["max_tokens"])}, 0
            while not stop.is_set():
                self.stream(r, times[i], stop)
                r = order[i][turn % len(requests)]
                turn += 1

        def watch():
            while not all(times):
                time.sleep(0.05)
            window.append(time.monotonic())
            time.sleep(seconds)
            window.append(time.monotonic())
            stop.set()

        window = []
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        self.in_parallel(worker)
        watcher.join()
        return sum(window[0] < t <= window[1] for ours in times for t in ours) / (window[1] - window[0])
