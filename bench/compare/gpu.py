#!/usr/bin/env python3
"""Tutti, PyTorch and JAX side by side on a GPU.

    bench/compare/gpu.py                                        # all cases, about 6 minutes on an H200
    bench/compare/gpu.py --cases mlp --peers torch-graph,jax --rounds 7
    bench/compare/gpu.py --cases resnet50:bf16:256 --peers torch-compile        # minutes of compiling

Sides and rounds are compare.py's: each side makes one block of steps a round, the order is turned around in every
second round, and the median over the rounds counts. Tutti is measured twice: as its heuristics choose kernels, and with
--tune-kernels, which times them once and remembers. A ratio is a side's time by that of Tutti's heuristics: above 1,
Tutti is faster. All sides share one card; the one that is not asked does nothing, but keeps its memory.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from compare import Failure, Tutti, find_program, machine, measure, notice, print_table, start_peers, words

CASES = ("mlp:tf32:128", "tutorial-cnn:tf32:128", "tutorial-cnn:bf16:128", "tutorial-cnn:tf32:1024",
         "tutorial-cnn:bf16:1024", "resnet50:bf16:256")
PEERS = ("torch", "torch-graph", "torch-compile", "jax", "jax-loop")
TUTTIS = ("tutti", "tutti-tuned")


class Case:
    """WORKLOAD:PRECISION:BATCH"""

    def __init__(self, text):
        self.text = text
        self.workload, self.precision, batch = text.split(":")
        self.batch = int(batch)


def read_cases(text):
    """The name of a workload stands for all its cases above."""
    found = []
    for word in words(text):
        known = [case for case in CASES if case.split(":")[0] == word]
        try:
            found += [Case(case) for case in known or [word]]
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{word!r}: expected a workload of {', '.join(CASES)}, or one like these") from error
    return found


# ---- Ceilings ---------------------------------------------------------------------------------------------------


def measure_ceilings(sides):
    """Of the card, through PyTorch; None where that is not among the sides."""
    peer = next((side for side in sides if side.name.startswith("torch")), None)
    if not peer:
        notice("the card's ceilings are left out: PyTorch measures them")
        return None
    try:
        ceilings = peer.ceilings()
    except Failure as failure:
        notice(f"the card's ceilings are left out: {failure}")
        return None
    print(f"PyTorch copies {ceilings['copy_gbs']:.0f} GB/s (1 GiB, read and written) and multiplies 8192 x 8192 in "
          f"bf16 at {ceilings['product_tflops']:.0f} TFLOP/s\n", flush=True)
    return ceilings


# ---- Tables -----------------------------------------------------------------------------------------------------


def own_time(rows):
    return next((row["ms"] for row in rows if row["side"] == "tutti"), None)


def print_case(case, rows, seconds):
    own = own_time(rows)
    print(f"{case.workload}, {case.precision}, batch {case.batch} ({seconds:.0f} s)\n")
    lines = [[row["label"], f"{row['ms']:.4g}", f"{row['ms'] / own:.2f}x" if own else "-", f"{row['per_s']:.0f}",
              " ".join(f"{ms:.4g}" for ms in row["all_ms"])] for row in rows]
    print_table(["side", "median ms", "ratio", "samples/s", "rounds"], lines)
    lines = [[row["label"], f"{row['peak_bytes'] / 2**20:.1f} MiB", f"{row['compile_s']:.2f} s",
              f"{row['first_step_s']:.2f} s", f"{row['digest'][:12]}..., "
              f"{'the same' if row['digests'] == 1 else row['digests']} in all runs"]
             for row in rows if row["side"] in TUTTIS]
    if lines:
        print_table(["Tutti", "planned peak", "compiling", "first step", "digest"], lines)


def print_summary(found):
    """One line a case: both of Tutti's times and the fastest peer's."""
    lines = []
    for case, rows in found:
        times = {row["side"]: row["ms"] for row in rows}
        peers = [row for row in rows if row["side"] not in TUTTIS]
        best = min(peers, key=lambda row: row["ms"], default=None)
        line = [case.text]
        line += [f"{times[name]:.4g}" if name in times else "-" for name in TUTTIS]
        line += [best["label"], f"{best['ms']:.4g}"] if best else ["-", "-"]
        line += [f"{best['ms'] / times[name]:.2f}x" if best and name in times else "-" for name in TUTTIS]
        lines.append(line)
    print_table(["case, ms", "Tutti", "tuned", "best peer", "its time", "by Tutti's", "by tuned"], lines)


# ---- The command ------------------------------------------------------------------------------------------------


def read_options():
    parser = argparse.ArgumentParser(description="Measures Tutti, PyTorch and JAX side by side on a GPU.")
    parser.add_argument("--tutti", default=find_program(), metavar="PROGRAM", help="default %(default)s")
    parser.add_argument("--device", default="gpu:0", metavar="NAME", help="Tutti's; default %(default)s")
    parser.add_argument("--cases", type=read_cases, default=",".join(CASES), metavar="LIST",
                        help="workloads, or WORKLOAD:PRECISION:BATCH; default %(default)s")
    parser.add_argument("--peers", type=words, default="torch,torch-graph,jax", metavar="LIST",
                        help=f"of {', '.join(PEERS)}; default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.3, metavar="S", help="of a block; default %(default)s")
    parser.add_argument("--no-tuned", action="store_true", help="leave out Tutti with --tune-kernels")
    parser.add_argument("--no-ceilings", action="store_true", help="leave out the card's ceilings")
    parser.add_argument("--json", metavar="FILE", help="also write everything there")
    options = parser.parse_args()
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: unknown {unknown[0]!r}: expected some of {', '.join(PEERS)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds: expected numbers above 0")
    return options


def make_sides(options):
    try:
        own = [Tutti(options.tutti, options.device, 0)]
        own += [] if options.no_tuned else [Tutti(options.tutti, options.device, 0, tuned=True)]
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"gpu: cannot run {options.tutti}: {error}")
    return own + start_peers(options.peers, 0, "gpu")


def describe_card(options):
    """What `tutti devices` says of it, with the versions of the libraries."""
    done = subprocess.run([options.tutti, "devices", "--json"], capture_output=True, text=True, check=True)
    devices = json.loads(done.stdout)["devices"]
    wanted = options.device.split("/", maxsplit=1)[0]
    return next((device["description"] for device in devices if device["name"] == wanted), "no such device")


def write_json(path, here, ceilings, found):
    rows = [row for _, rows in found for row in rows]
    text = json.dumps({"machine": here, "ceilings": ceilings, "rows": rows}, indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def main():
    options, here = read_options(), machine()
    sides = make_sides(options)
    here["card"] = describe_card(options)
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
        if options.json:  # after every case: a machine that is taken away leaves what was measured
            write_json(options.json, here, ceilings, found)
    for side in sides:
        side.close()
    print_summary(found)
    sys.exit(0 if found and all(own_time(rows) for _, rows in found) else 1)


if __name__ == "__main__":
    main()
