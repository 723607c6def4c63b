#!/usr/bin/env python3
"""How far Tutti and PyTorch are from f64 on the same networks, weights and data.

    bench/compare/numerics.py                                   # the CPU, and the GPU if there is one
    bench/compare/numerics.py --only resnet --runs cpu/bf16,gpu:0/tf32
    bench/compare/numerics.py --write docs/numerics.md          # puts the table there, too

bench_numerics computes the loss and all gradients of twenty networks, and writes down what went in and what came out. Here the
same is computed by PyTorch: in f64 on the CPU, which is what both are compared with, and on the device and in the precision of
each run. f32 leaves tf32 off in PyTorch, tf32 turns it on for products and convolutions, bf16 is torch.autocast over f32
parameters.

An error is the norm of the difference over the norm of what it should be. A row has that of the loss and the largest of a
gradient, each the median over several draws of weights and data: where a rectifier's input is close to zero, rounding turns it
around, and how often that happens in one draw is luck. The ratio is the larger of Tutti's two by the larger of PyTorch's two
(or by 2^-24, to which both round a loss). The status is 1 where a ratio is above --limit, or where Tutti's f64 and PyTorch's
disagree.
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
LEAST_ERROR = 2.0 ** -24
SAME = 1e-9 # between two f64
BEGIN = "<!-- begin: bench/compare/numerics.py -->"
END = "<!-- end -->"


class Failure(Exception):
    pass


# ---- Files of bench_numerics ------------------------------------------------------------------------------------


def read_tensors(path):
    """name -> NumPy array, of a safetensors file."""
    import numpy
    types = {"F32": numpy.float32, "F64": numpy.float64, "I32": numpy.int32}
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error.strerror}") from error
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, about in json.loads(content[8:begin]).items():
        first, last = about["data_offsets"]
        array = numpy.frombuffer(content[begin + first:begin + last], types[about["dtype"]])
        tensors[name] = array.reshape(about["shape"]).copy()
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


def run_torch(network, arrays, wanted, device, precision):
    """name -> NumPy array in f64: the loss and the gradients."""
    import torch
    from numerics_networks import NETWORKS
    place = "cuda" + device[3:] if device.startswith("gpu") else "cpu"
    dtype = torch.float64 if precision == "f64" else torch.float32
    set_tf32(torch, precision == "tf32")
    p = {}
    for name, array in arrays.items():
        tensor = torch.tensor(array, device=place)
        p[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if name in wanted:
            p[name].requires_grad_(True)
    with torch.autocast(place.split(":")[0], dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = NETWORKS[network](p)
    gradients = torch.autograd.grad(loss, [p[name] for name in wanted])
    found = {"loss": loss.detach().double().cpu().numpy()}
    for name, gradient in zip(wanted, gradients):
        found[name] = gradient.detach().double().cpu().numpy()
    return found


# ---- Errors -----------------------------------------------------------------------------------------------------


def relative_error(found, right):
    import numpy
    size = float(numpy.linalg.norm(right))
    off = float(numpy.linalg.norm(found.reshape(right.shape) - right))
    return off / size if size else math.inf


def errors_of(found, right):
    """(of the loss, the largest of a gradient); NaN counts as endless."""
    listed = {name: relative_error(found[name], right[name]) for name in right}
    listed = {name: math.inf if math.isnan(error) else error for name, error in listed.items()}
    return listed["loss"], max(error for name, error in listed.items() if name != "loss")


class Row:
    def __init__(self, network, device, precision, tutti, torch):
        self.network, self.device, self.precision = network, device, precision
        self.tutti, self.torch = tutti, torch
        self.ratio = max(tutti) / max(LEAST_ERROR, *torch)

    def line(self):
        numbers = " | ".join(f"{error:.1e}" for error in self.tutti + self.torch)
        return f"| {self.network} | {self.device} | {self.precision} | {numbers} | {self.ratio:.2f} |"


HEADING = """| network | device | precision | Tutti: loss | gradient | PyTorch: loss | gradient | ratio |
|---|---|---|---|---|---|---|---|"""


def compare_draw(network, draw, runs, folder):
    """(Tutti's and PyTorch's errors of each run, by how much the two f64 differ)"""

    def read(what):
        return read_tensors(folder / f"{network}.{draw}.{what}.safetensors")

    arrays, ours = read("inputs"), read("ref-f64")
    wanted = [name for name in ours if name != "loss"]
    right = run_torch(network, arrays, wanted, "cpu", "f64")
    found = []
    for device, precision in runs:
        torch = run_torch(network, arrays, wanted, device, precision)
        found.append((errors_of(read(f"{device}-{precision}"), right), errors_of(torch, right)))
    return found, max(errors_of(ours, right))


def medians(pairs):
    """Of losses and of gradients, each for itself."""
    return tuple(statistics.median(column) for column in zip(*pairs))


def compare_network(network, options, folder):
    """(rows, by how much the two f64 differ)"""
    run_tutti(network, options, folder)
    draws = [compare_draw(network, draw, options.runs, folder) for draw in range(options.draws)]
    rows = []
    for i, (device, precision) in enumerate(options.runs):
        tutti, torch = (medians([found[i][side] for found, _ in draws]) for side in (0, 1))
        rows.append(Row(network, device, precision, tutti, torch))
    return rows, max(off for _, off in draws)


# ---- The report -------------------------------------------------------------------------------------------------


def machine():
    import torch
    cards = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    model = "an unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return ", ".join([model, *cards, f"PyTorch {torch.__version__}"])


def summarize(rows, limit):
    """A line a device and precision: the middle and the largest ratio."""
    lines = []
    for device, precision in dict.fromkeys((row.device, row.precision) for row in rows):
        ratios = sorted(row.ratio for row in rows if (row.device, row.precision) == (device, precision))
        above = sum(ratio > limit for ratio in ratios)
        lines.append(f"| {device} | {precision} | {len(ratios)} | {ratios[len(ratios) // 2]:.2f} | {ratios[-1]:.2f} | {above} |")
    return "\n".join([f"| device | precision | networks | median ratio | largest | above {limit:g} |",
                      "|---|---|---|---|---|---|", *lines])


def write_into(path, text):
    content = path.read_text()
    if BEGIN not in content or END not in content.split(BEGIN, 1)[1]:
        raise Failure(f"'{path}' has no lines '{BEGIN}' and '{END}': expected both, the table goes between them")
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
    parser.add_argument("--program", default=str(ROOT / "build/release/bench_numerics"), help="bench_numerics")
    parser.add_argument("--runs", type=read_runs, help="devices and precisions, such as cpu/bf16,gpu:0/tf32")
    parser.add_argument("--only", help="one network")
    parser.add_argument("--draws", type=int, default=9, choices=range(1, 100), metavar="N",
                        help="of weights and data, whose median counts (9)")
    parser.add_argument("--limit", type=float, default=3, help="the largest ratio that is good (3)")
    parser.add_argument("--write", type=Path, help="a Markdown file to put the table into")
    return parser.parse_args()


def compare_all(options):
    """(all rows, (by how much the two f64 differ at most, in which network))"""
    from numerics_networks import NETWORKS
    if options.only and options.only not in NETWORKS:
        raise Failure(f"there is no network '{options.only}': expected one of {', '.join(NETWORKS)}")
    rows, disagreements = [], []
    for network in [options.only] if options.only else NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            found, off = compare_network(network, options, Path(folder))
        rows += found
        disagreements.append((off, network))
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
        raise Failure(f"{error}: NumPy and PyTorch are needed, in the Python that runs this") from error
    options.runs = options.runs or default_runs()
    print(HEADING)
    rows, (off, network) = compare_all(options)
    about = f"{machine()}; medians of {options.draws} draws. Tutti's `ref` in f64 and PyTorch's f64 differ by at most {off:.1e} ({network})."
    summary = summarize(rows, options.limit)
    print(f"\n{summary}\n\n{about}")
    if options.write:
        write_into(options.write, "\n".join([about, "", summary, "", HEADING, *(row.line() for row in rows)]))
    bad = [row for row in rows if not row.ratio <= options.limit]
    for row in bad:
        print(f"numerics.py: {row.network} on {row.device} in {row.precision}: Tutti's error is {row.ratio:.2f} times "
              f"PyTorch's, expected at most {options.limit:g}", file=sys.stderr)
    if off > SAME:
        print(f"numerics.py: {network}: Tutti's f64 and PyTorch's differ by {off:.1e}, expected at most {SAME:g}",
              file=sys.stderr)
    return 1 if bad or off > SAME else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"numerics.py: {failure}", file=sys.stderr)
        sys.exit(2)
