#!/usr/bin/env python3
"""Compares training steps of Tutti, PyTorch and JAX on a CPU. gpu.py does the same on a GPU with the classes of this
file.

    bench/compare/compare.py --threads 2,16
    bench/compare/compare.py --workloads tutorial-cnn --precision bf16 --json result.json

The speed of a machine changes over time (clock rates, temperature, other load). Every round therefore measures
each framework once, one directly after the other, and every second round in the opposite order; the results are
medians over the rounds. Tutti runs as `tutti bench --json`, a new process per round. The other frameworks
("peers") run in server processes (peers.py), so that imports and compiling are not timed. Frameworks that are not
installed are reported and skipped. A ratio is the other framework's time divided by Tutti's: above 1, Tutti is
faster.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAUSE_SECONDS = 0.1  # time for the previous framework's threads to stop spinning
MIN_STEPS, MIN_WARMUP_STEPS = 2, 3
DIGEST_STEPS = 3  # steps that `tutti bench` runs first, in separate calls
WARMUP_MILLISECONDS = 300  # of each Tutti process; peers stay warm


def notice(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


class Failure(Exception):
    """A framework failed; the message says why."""


# ---- Frameworks --------------------------------------------------------------------------------------------------


class Tutti:
    def __init__(self, program, devices, threads, tuned=False):
        self.program, self.devices, self.threads, self.tuned = program, devices, threads, tuned
        self.on_gpu = devices.startswith("gpu")
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.name = "tutti-tuned" if tuned else "tutti"
        self.label = f"Tutti {version.stdout.split()[-1]}" + (", tuned" if tuned else "")

    def bench(self, steps, warmup):
        command = [self.program, "bench", self.workload, "--devices", self.devices, "--batch", str(self.batch),
                   "--precision", self.precision, "--steps", str(steps), "--warmup", str(warmup), "--repeat", "1",
                   "--json", *(["--threads", str(self.threads)] if self.threads else []),
                   *(["--tune-kernels", "yes"] if self.tuned else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(done.stderr.strip() or f"exit status {done.returncode}")
        self.results.append(json.loads(done.stdout))
        return self.results[-1]["ms_per_step"]

    def prepare(self, workload, batch, precision):
        self.workload, self.batch, self.precision = workload, batch, precision
        self.results = []
        # On a GPU the time of two steps is mostly the overhead of the call.
        ms = self.bench(20 if self.on_gpu else MIN_STEPS, MIN_WARMUP_STEPS)
        self.warmup = max(MIN_WARMUP_STEPS, math.ceil(WARMUP_MILLISECONDS / ms))
        return ms

    def block(self, steps):
        # On a GPU the first call with more steps than before allocates buffers, so the warm-up has as many steps.
        return self.bench(steps, max(self.warmup, steps + DIGEST_STEPS) if self.on_gpu else self.warmup)

    def extra_results(self):
        medians = {key: statistics.median(result[key] for result in self.results)
                   for key in ("compile_s", "first_step_s")}
        last = {key: self.results[-1][key] for key in ("peak_bytes", "digest")}
        return medians | last | {"digests": len({result["digest"] for result in self.results})}

    def close(self):
        pass


class Peer:
    def __init__(self, name, threads, device="cpu"):
        self.name = name
        command = [sys.executable, str(HERE / "peers.py"), name, "--threads", str(threads), "--device", device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1)

    def start(self):
        """Waits until the process has finished its imports."""
        self.label = f"{self.name} {self.read_response()['version']}"

    def read_response(self):
        line = self.process.stdout.readline()
        result = json.loads(line) if line else {"error": "its process ended"}
        if "error" in result:
            raise Failure(result["error"])
        return result

    def request(self, **fields):
        try:
            self.process.stdin.write(json.dumps(fields) + "\n")
        except BrokenPipeError as error:
            raise Failure("its process ended") from error
        return self.read_response()

    def prepare(self, workload, batch, precision):
        return self.request(do="prepare", workload=workload, batch=batch, precision=precision)["ms"]

    def block(self, steps):
        return self.request(do="block", steps=steps)["ms"]

    def ceilings(self):
        return self.request(do="ceilings")

    def extra_results(self):
        return {}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start_peers(names, threads, device="cpu"):
    peers, ready = [Peer(name, threads, device) for name in names], []
    for peer in peers:
        try:
            peer.start()
            ready.append(peer)
        except Failure as failure:
            notice(f"{peer.name} is skipped: {failure}")
            peer.close()
    return ready


# ---- Measuring --------------------------------------------------------------------------------------------------


def prepare(sides, workload, options):
    """Returns {framework: steps per block} for the frameworks that support the workload."""
    steps = {}
    for side in sides:
        try:
            ms = side.prepare(workload, options.batch, options.precision)
            steps[side] = max(MIN_STEPS, math.ceil(1e3 * options.seconds / ms))
        except Failure as failure:
            notice(f"{workload}: {side.name} is skipped: {failure}")
    return steps


def measure(sides, workload, threads, options):
    """Returns one row per framework: {'side', 'ms', 'all_ms', ...}, Tutti first."""
    steps = prepare(sides, workload, options)
    times = {side: [] for side in steps}
    for round_number in range(options.rounds):
        order = list(times) if round_number % 2 == 0 else list(times)[::-1]
        for side in order:
            time.sleep(PAUSE_SECONDS)
            try:
                times[side].append(side.block(steps[side]))
            except Failure as failure:
                notice(f"{workload}: {side.name} is skipped: {failure}")
                del times[side]
    rows = []
    for side, all_ms in times.items():
        ms = statistics.median(all_ms)
        rows.append({"workload": workload, "threads": threads, "precision": options.precision, "batch": options.batch,
                     "side": side.name, "label": side.label, "ms": ms, "per_s": 1e3 * options.batch / ms,
                     "steps": steps[side], "all_ms": all_ms} | side.extra_results())
    return rows


# ---- Tables -----------------------------------------------------------------------------------------------------


def print_table(head, lines):
    table = [head, *lines]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for i, line in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(flush=True)


def spread(row):
    return f"{row['ms']:.4g} ms ({min(row['all_ms']):.4g}-{max(row['all_ms']):.4g})"


def print_rows(rows, threads, options):
    print(f"{options.devices}, {threads} threads, {options.precision}, batch {options.batch}; "
          f"median (minimum-maximum) of {options.rounds} rounds, alternating\n")
    peers = list(dict.fromkeys((row["side"], row["label"]) for row in rows if row["side"] != "tutti"))
    head = ["workload", next((row["label"] for row in rows if row["side"] == "tutti"), "Tutti")]
    for _, label in peers:
        head += [label, "ratio"]
    lines = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        by_side = {row["side"]: row for row in rows if row["workload"] == workload}
        tutti = by_side.get("tutti")
        line = [workload, spread(tutti) if tutti else "-"]
        for name, _ in peers:
            peer = by_side.get(name)
            line += [spread(peer) if peer else "-", f"{peer['ms'] / tutti['ms']:.2f}x" if peer and tutti else "-"]
        lines.append(line)
    print_table(head, lines)
    print_tutti(rows)


def print_tutti(rows):
    lines = [[row["workload"], f"{row['per_s']:.0f}", f"{row['peak_bytes'] / 2**20:.1f} MiB",
              f"{row['compile_s']:.3f} s", f"{row['first_step_s']:.3f} s",
              f"{row['digest'][:12]}..., {'the same' if row['digests'] == 1 else row['digests']} in all runs"]
             for row in rows if row["side"] == "tutti"]
    if lines:
        print_table(["Tutti", "samples/s", "planned peak", "compile time", "first step", "digest"], lines)


# ---- Command line ------------------------------------------------------------------------------------------------


def machine():
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "system": platform.platform(),
            "python": platform.python_version(), "date": datetime.date.today().isoformat()}


def find_program():
    for build in ("bench", "release"):
        path = ROOT / "build" / build / "tutti"
        if path.exists():
            return str(path)
    return "tutti"


def split_list(text):
    return [word for word in text.replace(",", " ").split() if word]


def read_options():
    parser = argparse.ArgumentParser(description="Compares training steps of Tutti, PyTorch and JAX.")
    parser.add_argument("--tutti", default=find_program(), metavar="PROGRAM", help="default %(default)s")
    parser.add_argument("--workloads", type=split_list, default="mlp,tutorial-cnn,resnet20", metavar="LIST")
    parser.add_argument("--threads", type=split_list, default="2,16", metavar="LIST",
                        help="numbers of threads, default %(default)s; those above the number of cores are skipped")
    parser.add_argument("--peers", type=split_list, default="torch,jax", metavar="LIST",
                        help="frameworks to compare with: torch (eager), torch-compile, jax; default %(default)s")
    parser.add_argument("--devices", default="cpu:0", metavar="NAME", help="device of Tutti, default %(default)s")
    parser.add_argument("--batch", type=int, default=128, metavar="N")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default 5; publish results of at least 5")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="time per block, default %(default)s")
    parser.add_argument("--json", metavar="FILE", help="also write all results to FILE")
    options = parser.parse_args()
    unknown = [name for name in options.peers if name not in ("torch", "torch-compile", "jax")]
    if unknown:
        parser.error(f"--peers: unknown {unknown[0]!r}: expected torch, torch-compile or jax")
    if not all(word.isdigit() and int(word) for word in options.threads):
        parser.error("--threads: expected comma-separated integers of at least 1")
    if options.rounds < 1 or options.batch < 1 or options.seconds <= 0:
        parser.error("--rounds, --batch and --seconds: expected numbers above 0")
    return options


def main():
    options = read_options()
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, {here['date']}\n", flush=True)
    rows, failed = [], False
    for threads in map(int, options.threads):
        if threads > here["cores"]:
            notice(f"{threads} threads are skipped: there are {here['cores']} cores")
            continue
        try:
            tutti = Tutti(options.tutti, options.devices, threads)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"compare: cannot run {options.tutti}: {error}")
        sides = [tutti, *start_peers(options.peers, threads)]
        found = []
        for workload in options.workloads:
            measured = measure(sides, workload, threads, options)
            failed = failed or not any(row["side"] == "tutti" for row in measured)
            found += measured
        for side in sides:
            side.close()
        print_rows(found, threads, options)
        rows += found
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": here, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main()
