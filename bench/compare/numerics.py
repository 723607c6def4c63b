#!/usr/bin/env python3
"""Compares the errors of Tutti and PyTorch against f64, with the same networks, weights and data.

    bench/compare/numerics.py                                   # the CPU, and the GPU if there is one
    bench/compare/numerics.py --only resnet --runs cpu/bf16,gpu:0/tf32
    bench/compare/numerics.py --write docs/numerics.md          # also writes the table there

bench_numerics computes the loss and all gradients of twenty networks and saves inputs and results. This script
computes the same with PyTorch: in f64 on the CPU, which is the reference for both, and on the device and in the
precision of each run. In PyTorch, f32 disables tf32, tf32 enables it for matrix products and convolutions, and
bf16 is torch.autocast with f32 parameters.

An error is |difference| / |expected| in the Euclidean norm. A row has the error of the loss and the largest error
of a gradient, each the median over several sets of random weights and data: if the input of a ReLU is close to zero,
rounding may change its sign, so a single set may not be typical. The ratio is the larger of Tutti's two errors
divided by the larger of PyTorch's two (at least 2^-24, the rounding error of an f32 loss). The exit status is 1 if
a ratio is above --limit, or if the f64 results of Tutti and PyTorch disagree.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIN_ERROR = 2.0 ** -24
MAX_F64_DIFFERENCE = 1e-9
BEGIN = "<!-- begin: bench/compare/numerics.py -->"
END = "<!-- end -->"


class Failure(Exception):
    pass


# ---- Files of bench_numerics ------------------------------------------------------------------------------------


def read_tensors(path):
    """Returns {name: NumPy array} of a safetensors file."""
    import numpy
    types = {"F32": numpy.float32, "F64": numpy.float64, "I32": numpy.int32}
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error.strerror}") from error
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, description in json.loads(content[8:begin]).items():
        first, last = description["data_offsets"]
        array = numpy.frombuffer(content[begin + first:begin + last], types[description["dtype"]])
        tensors[name] = array.reshape(description["shape"]).copy()
    return tensors


def run_tutti(network, options, folder):
    command = [options.program, "--only", network, "--draws", str(options.draws), "--out", str(folder)]
    command += [f"{device}/{precision}" for device, precision in options.runs]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Failure(f"cannot run '{options.program}': {error.strerror}: build bench_numerics, or give --program") \
            from error
    if done.returncode != 0:
        raise Failure(f"'{' '.join(command)}' failed: {done.stderr.strip()}")


# ---- PyTorch ----------------------------------------------------------------------------------------------------


def set_tf32(torch, on):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on


def run_torch(network, arrays, differentiated, device, precision):
    """Returns {name: NumPy array in f64}: the loss and the gradients with respect to `differentiated`."""
    import torch
    from numerics_networks import NETWORKS
    torch_device = "cuda" + device[3:] if device.startswith("gpu") else "cpu"
    dtype = torch.float64 if precision == "f64" else torch.float32
    set_tf32(torch, precision == "tf32")
    p = {}
    for name, array in arrays.items():
        tensor = torch.tensor(array, device=torch_device)
        p[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if name in differentiated:
            p[name].requires_grad_(True)
    with torch.autocast(torch_device.split(":")[0], dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = NETWORKS[network](p)
    gradients = torch.autograd.grad(loss, [p[name] for name in differentiated])
    found = {"loss": loss.detach().double().cpu().numpy()}
    for name, gradient in zip(differentiated, gradients):
        found[name] = gradient.detach().double().cpu().numpy()
    return found


# ---- Errors -----------------------------------------------------------------------------------------------------


def relative_error(found, expected):
    import numpy
    size = float(numpy.linalg.norm(expected))
    difference = float(numpy.linalg.norm(found.reshape(expected.shape) - expected))
    return difference / size if size else math.inf


def errors_of(found, expected):
    """Returns the error of the loss and the largest error of a gradient; NaN counts as infinity."""
    listed = {name: relative_error(found[name], expected[name]) for name in expected}
    listed = {name: math.inf if math.isnan(error) else error for name, error in listed.items()}
    return listed["loss"], max(error for name, error in listed.items() if name != "loss")


class Row:
    def __init__(self, network, device, precision, tutti, torch):
        self.network, self.device, self.precision = network, device, precision
        self.tutti, self.torch = tutti, torch
        self.ratio = max(tutti) / max(MIN_ERROR, *torch)

    def line(self):
        numbers = " | ".join(f"{error:.1e}" for error in self.tutti + self.torch)
        return f"| {self.network} | {self.device} | {self.precision} | {numbers} | {self.ratio:.2f} |"


HEADING = """| network | device | precision | Tutti: loss | gradient | PyTorch: loss | gradient | ratio |
|---|---|---|---|---|---|---|---|"""


def compare_set(network, data_set, runs, folder):
    """Returns the errors of Tutti and PyTorch per run, and the difference of their f64 results."""

    def read(what):
        return read_tensors(folder / f"{network}.{data_set}.{what}.safetensors")

    arrays, tutti_f64 = read("inputs"), read("ref-f64")
    differentiated = [name for name in tutti_f64 if name != "loss"]
    expected = run_torch(network, arrays, differentiated, "cpu", "f64")
    found = []
    for device, precision in runs:
        torch = run_torch(network, arrays, differentiated, device, precision)
        found.append((errors_of(read(f"{device}-{precision}"), expected), errors_of(torch, expected)))
    return found, max(errors_of(tutti_f64, expected))


def medians(pairs):
    """Returns the median error of losses and that of gradients."""
    return tuple(statistics.median(column) for column in zip(*pairs))


def compare_network(network, options, folder):
    """Returns the rows, and the difference of the f64 results of Tutti and PyTorch."""
    run_tutti(network, options, folder)
    found_sets = [compare_set(network, data_set, options.runs, folder) for data_set in range(options.draws)]
    rows = []
    for i, (device, precision) in enumerate(options.runs):
        tutti, torch = (medians([found[i][side] for found, _ in found_sets]) for side in (0, 1))
        rows.append(Row(network, device, precision, tutti, torch))
    return rows, max(difference for _, difference in found_sets)


# ---- Report -------------------------------------------------------------------------------------------------


def machine():
    import torch
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    model = "an unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return ", ".join([model, *gpus, f"PyTorch {torch.__version__}"])


def summarize(rows, limit):
    """Returns a table with the median and the largest ratio per device and precision."""
    lines = []
    for device, precision in dict.fromkeys((row.device, row.precision) for row in rows):
        ratios = sorted(row.ratio for row in rows if (row.device, row.precision) == (device, precision))
        above = sum(ratio > limit for ratio in ratios)
        lines.append(f"| {device} | {precision} | {len(ratios)} | {ratios[len(ratios) // 2]:.2f} | {ratios[-1]:.2f} | {above} |")
    return "\n".join([f"| device | precision | networks | median ratio | largest | above {limit:g} |",
                      "|---|---|---|---|---|---|", *lines])


def replace_table(path, text):
    content = path.read_text()
    if BEGIN not in content or END not in content.split(BEGIN, 1)[1]:
        raise Failure(f"'{path}' must contain the lines '{BEGIN}' and '{END}', between which the table is written")
    before, rest = content.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def read_runs(text):
    runs = []
    for word in text.split(","):
        device, slash, precision = word.rpartition("/")
        if not slash or not device.startswith(("cpu", "gpu")) or precision not in ("f32", "tf32", "bf16"):
            raise argparse.ArgumentTypeError(
                f"{word!r}: expected cpu or gpu:0 and f32, tf32 or bf16, as in gpu:0/bf16")
        runs.append((device, precision))
    return runs


def default_runs():
    import torch
    text = "cpu/f32,cpu/bf16"
    return read_runs(text + ",gpu:0/f32,gpu:0/tf32,gpu:0/bf16" if torch.cuda.is_available() else text)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bench_numerics"), help="path of bench_numerics")
    parser.add_argument("--runs", type=read_runs, help="devices and precisions, such as cpu/bf16,gpu:0/tf32")
    parser.add_argument("--only", help="run only this network")
    parser.add_argument("--draws", type=int, default=9, choices=range(1, 100), metavar="N",
                        help="number of sets of random weights and data, whose median error is reported (default 9)")
    parser.add_argument("--limit", type=float, default=3, help="largest accepted ratio (default 3)")
    parser.add_argument("--write", type=Path, help="Markdown file to write the table to")
    return parser.parse_args()


def compare_all(options):
    """Returns all rows, and (largest difference of the f64 results, its network)."""
    from numerics_networks import NETWORKS
    if options.only and options.only not in NETWORKS:
        raise Failure(f"unknown network '{options.only}': expected one of {', '.join(NETWORKS)}")
    rows, disagreements = [], []
    for network in [options.only] if options.only else NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            found, difference = compare_network(network, options, Path(folder))
        rows += found
        disagreements.append((difference, network))
        for row in found:
            print(row.line(), flush=True)
    return rows, max(disagreements)


def main():
    options = read_options()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    try:
        import numpy # noqa: F401
        import torch # noqa: F401
    except ImportError as error:
        raise Failure(f"{error}: this script needs NumPy and PyTorch") from error
    options.runs = options.runs or default_runs()
    print(HEADING)
    rows, (difference, network) = compare_all(options)
    description = f"{machine()}; medians of {options.draws} draws. Tutti's `ref` in f64 and PyTorch's f64 differ by at most {difference:.1e} ({network})."
    summary = summarize(rows, options.limit)
    print(f"\n{summary}\n\n{description}")
    if options.write:
        replace_table(options.write, "\n".join([description, "", summary, "", HEADING, *(row.line() for row in rows)]))
    above_limit = [row for row in rows if not row.ratio <= options.limit]
    for row in above_limit:
        print(f"numerics.py: {row.network} on {row.device} in {row.precision}: Tutti's error is {row.ratio:.2f} times "
              f"PyTorch's, expected at most {options.limit:g}", file=sys.stderr)
    if difference > MAX_F64_DIFFERENCE:
        print(f"numerics.py: {network}: Tutti's f64 and PyTorch's differ by {difference:.1e}, expected at most {MAX_F64_DIFFERENCE:g}",
              file=sys.stderr)
    return 1 if above_limit or difference > MAX_F64_DIFFERENCE else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"numerics.py: {failure}", file=sys.stderr)
        sys.exit(2)
