"""llama.cpp's RPC workers on this machine, for compare.py --rpc-server.

ggml-rpc-server (once rpc-server) and libggml-rpc.so come from llama.cpp's sources, which the sdist of the PyPI package
llama-cpp-python carries in vendor/llama.cpp: cmake -DGGML_RPC=ON -DGGML_NATIVE=ON, target ggml-rpc-server. They must be those of the
version of llama-cpp-python that is installed.
"""
import os
import pathlib
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Workers:
    """Workers on loopback ports, one thread each, each bound to a core as mpirun binds a rank; ended with the block."""

    def __init__(self, server, count):
        self.server, self.count = server, count
        self.processes, self.addresses = [], []

    def start(self, core):
        port = free_port()
        binding = {"preexec_fn": lambda: os.sched_setaffinity(0, {core})} if core is not None else {}
        process = subprocess.Popen([self.server, "-H", "127.0.0.1", "-p", str(port), "-t", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **binding)
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

    def library(self):
        """libggml-rpc.so beside the server."""
        return str(next(pathlib.Path(self.server).resolve().parent.glob("libggml-rpc.so*")))
