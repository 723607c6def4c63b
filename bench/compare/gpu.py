#!/usr/bin/env python3
"""Compares training steps of Tutti, PyTorch and JAX on a GPU.

    bench/compare/gpu.py                                        # all cases, about 6 minutes on an H200
    bench/compare/gpu.py --cases mlp --peers torch-graph,jax --rounds 7
    bench/compare/gpu.py --cases resnet50:bf16:256 --peers torch-compile        # compiles for minutes

Measures as compare.py does: each framework runs one block of steps per round, every second round in the opposite
order, and the results are medians over the rounds. Tutti is measured twice: with kernels chosen by heuristics, and
with --tune-kernels, which measures kernels once and caches the choice. A ratio is a framework's time divided by
that of Tutti with heuristics: above 1, Tutti is faster. All frameworks share one GPU; while one is measured the
others are idle, but keep their memory.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from compare import Failure, Tutti, find_program, machine, measure, notice, print_table, start_peers, split_list

CASES = ("mlp:tf32:128", "tutorial-cnn:tf32:128", "tutorial-cnn:bf16:128", "tutorial-cnn:tf32:1024",
         "tutorial-cnn:bf16:1024", "resnet50:bf16:256")
PEERS = ("torch", "torch-graph", "torch-compile", "jax", "jax-loop")
TUTTI_NAMES = ("tutti", "tutti-tuned")


class Case:
    """A case given as WORKLOAD:PRECISION:BATCH."""

    def __init__(self, text):
        self.text = text
        self.workload, self.precision, batch = text.split(":")
        self.batch = int(batch)


def read_cases(text):
    """Parses a list of cases. The name of a workload means all its entries in CASES."""
    found = []
    for word in split_list(text):
        known = [case for case in CASES if case.split(":")[0] == word]
        try:
            found += [Case(case) for case in known or [word]]
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{word!r}: expected a workload, or WORKLOAD:PRECISION:BATCH such as {', '.join(CASES)}") from error
    return found


# ---- Ceilings ---------------------------------------------------------------------------------------------------


def measure_ceilings(sides):
    """Measures the GPU's ceilings with PyTorch; returns None if PyTorch is not among the frameworks."""
    peer = next((side for side in sides if side.name.startswith("torch")), None)
    if not peer:
        notice("the GPU's ceilings are skipped: they need PyTorch")
        return None
    try:
        ceilings = peer.ceilings()
    except Failure as failure:
        notice(f"the GPU's ceilings are skipped: {failure}")
        return None
    print(f"PyTorch copies {ceilings['copy_gbs']:.0f} GB/s (1 GiB, read and written) and multiplies 8192 x 8192 in "
          f"bf16 at {ceilings['product_tflops']:.0f} TFLOP/s\n", flush=True)
    return ceilings


# ---- Tables -----------------------------------------------------------------------------------------------------


def tutti_ms(rows):
    return next((row["ms"] for row in rows if row["side"] == "tutti"), None)


def print_case(case, rows, seconds):
    baseline = tutti_ms(rows)
    print(f"{case.workload}, {case.precision}, batch {case.batch} ({seconds:.0f} s)\n")
    lines = [[row["label"], f"{row['ms']:.4g}", f"{row['ms'] / baseline:.2f}x" if baseline else "-",
              f"{row['per_s']:.0f}", " ".join(f"{ms:.4g}" for ms in row["all_ms"])] for row in rows]
    print_table(["framework", "median ms", "ratio", "samples/s", "ms of each round"], lines)
    lines = [[row["label"], f"{row['peak_bytes'] / 2**20:.1f} MiB", f"{row['compile_s']:.2f} s",
              f"{row['first_step_s']:.2f} s", f"{row['digest'][:12]}..., "
              f"{'the same' if row['digests'] == 1 else row['digests']} in all runs"]
             for row in rows if row["side"] in TUTTI_NAMES]
    if lines:
        print_table(["Tutti", "planned peak", "compile time", "first step", "digest"], lines)


def print_summary(found):
    """Prints one line per case: both times of Tutti and that of the fastest other framework."""
    lines = []
    for case, rows in found:
        times = {row["side"]: row["ms"] for row in rows}
        peers = [row for row in rows if row["side"] not in TUTTI_NAMES]
        best = min(peers, key=lambda row: row["ms"], default=None)
        line = [case.text]
        line += [f"{times[name]:.4g}" if name in times else "-" for name in TUTTI_NAMES]
        line += [best["label"], f"{best['ms']:.4g}"] if best else ["-", "-"]
        line += [f"{best['ms'] / times[name]:.2f}x" if best and name in times else "-" for name in TUTTI_NAMES]
        lines.append(line)
    print_table(["case, ms", "Tutti", "tuned", "fastest other", "its time", "ratio to Tutti", "ratio to tuned"], lines)


# ---- Command line ------------------------------------------------------------------------------------------------


def read_options():
    parser = argparse.ArgumentParser(description="Compares training steps of Tutti, PyTorch and JAX on a GPU.")
    parser.add_argument("--tutti", default=find_program(), metavar="PROGRAM", help="default %(default)s")
    parser.add_argument("--device", default="gpu:0", metavar="NAME", help="device of Tutti, default %(default)s")
    parser.add_argument("--cases", type=read_cases, default=",".join(CASES), metavar="LIST",
                        help="workloads, or WORKLOAD:PRECISION:BATCH; default %(default)s")
    parser.add_argument("--peers", type=split_list, default="torch,torch-graph,jax", metavar="LIST",
                        help=f"frameworks to compare with: {', '.join(PEERS)}; default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.3, metavar="S", help="time per block, default %(default)s")
    parser.add_argument("--no-tuned", action="store_true", help="skip Tutti with --tune-kernels")
    parser.add_argument("--no-ceilings", action="store_true", help="skip measuring the GPU's ceilings")
    parser.add_argument("--json", metavar="FILE", help="also write all results to FILE")
    options = parser.parse_args()
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: unknown {unknown[0]!r}: expected some of {', '.join(PEERS)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds: expected numbers above 0")
    return options


def create_sides(options):
    try:
        tutti_runs = [Tutti(options.tutti, options.device, 0)]
        tutti_runs += [] if options.no_tuned else [Tutti(options.tutti, options.device, 0, tuned=True)]
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"gpu: cannot run {options.tutti}: {error}")
    return tutti_runs + start_peers(options.peers, 0, "gpu")


def describe_gpu(options):
    """Returns the description by `tutti devices`, which contains the versions of the libraries."""
    done = subprocess.run([options.tutti, "devices", "--json"], capture_output=True, text=True, check=True)
    devices = json.loads(done.stdout)["devices"]
    name = options.device.split("/", maxsplit=1)[0]
    return next((device["description"] for device in devices if device["name"] == name), "no such device")


def write_json(path, here, ceilings, found):
    rows = [row for _, rows in found for row in rows]
    text = json.dumps({"machine": here, "ceilings": ceilings, "rows": rows}, indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def main():
    options, here = read_options(), machine()
    sides = create_sides(options)
    here["card"] = describe_gpu(options)
    print(f"{options.device}: {here['card']}; {here['processor']}, {here['cores']} cores, {here['date']}\n", flush=True)
    ceilings = None if options.no_ceilings else measure_ceilings(sides)
    found = []
    for case in options.cases:
        start = time.perf_counter()
        settings = argparse.Namespace(batch=case.batch, precision=case.precision, rounds=options.rounds,
                                      seconds=options.seconds)
        rows = measure(sides, case.workload, 0, settings)
        found.append((case, rows))
        print_case(case, rows, time.perf_counter() - start)
        if options.json:  # after every case, so that results are kept if the program is interrupted
            write_json(options.json, here, ceilings, found)
    for side in sides:
        side.close()
    print_summary(found)
    sys.exit(0 if found and all(tutti_ms(rows) for _, rows in found) else 1)


if __name__ == "__main__":
    main()
