#!/usr/bin/env python3
"""Compares inference of Tutti with PyTorch and ONNX Runtime, on a CPU or a GPU.

    bench/inference/compare.py BENCH_INFERENCE                                   # on 16 cores about 150 seconds
    bench/inference/compare.py BENCH_INFERENCE --networks resnet50 --threads 2 --cases f32:1,bf16:32 --rounds 7
    bench/inference/compare.py BENCH_INFERENCE --gpu                             # resnet50 in bf16, batch 1, 8, 256

Every round measures each program once, one directly after the other, and every second round in the opposite order. A
number in the table is the median over the rounds. A ratio is Tutti's time divided by the other program's in the same
round, so below 1 Tutti is faster; `best` is the ratio to the faster of the others. All use the same number of threads.

On the CPU, PyTorch is eager with channels-last images, in bf16 by autocast. ONNX Runtime, in f32 only, gets an ONNX
file with the weights of bench_inference, so that results can be compared: `difference` is the largest difference
relative to the largest result. resnet50 of PyTorch is that of torchvision; Tutti and ONNX Runtime have its batch
normalisation folded.

On a GPU, PyTorch is compiled: with CUDA graphs (mode reduce-overhead) below batch 64, else in the default mode. The
input is in the GPU's memory, in bf16. `with copies` is the time of a call that also copies the images from the host's
memory, in pinned memory for PyTorch, and the results back.

A program that is not installed is reported and skipped.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

INPUT_TENSOR = 1000  # as in networks.h
PAUSE_SECONDS = 0.06  # time for the threads of the program before to stop spinning
MIN_ROUNDS = 3
CPU_CASES = {"mlp": "f32:1,f32:128,bf16:128", "tutorial-cnn": "f32:1,f32:128,bf16:128",
             "resnet50": "f32:1,f32:32,bf16:32"}
CPU_THREADS = {"mlp": "16,2,1", "tutorial-cnn": "16,2,1", "resnet50": "16,2"}
SIDES = ("torch", "ort")


def notice(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


class Unavailable(Exception):
    """A program cannot be measured; the message says why."""


# ---- The networks, with the weights of bench_inference (networks.c, onnx.js) ---------------------------------------


def numbers(np, tensor, count, scale):
    """Numbers in [-1, 1) times a scale, that depend on the tensor and the index only."""
    h = np.arange(count, dtype=np.uint32) ^ np.uint32((tensor + 1) * 0x9e3779b9 & 0xffffffff)
    h *= np.uint32(0x85ebca6b)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xc2b2ae35)
    h ^= h >> np.uint32(16)
    return ((h >> np.uint32(8)) / 8388608.0 - 1).astype(np.float64) * scale


class OnnxGraph:
    """Builds an ONNX file. A tensor's number is its position in the order of calls."""

    def __init__(self, input_dims):
        import numpy
        import onnx
        self.np, self.onnx, self.input_dims = numpy, onnx, input_dims
        self.nodes, self.initializers = [], []

    def weight(self, dims, scale):
        name = f"w{len(self.initializers)}"
        data = numbers(self.np, len(self.initializers), math.prod(dims), scale).astype(self.np.float32)
        self.initializers.append(self.onnx.numpy_helper.from_array(data.reshape(dims), name))
        return name

    def add(self, operation, inputs, **attributes):
        output = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def conv(self, x, before, after, size, stride):
        weight = self.weight([after, before, size, size], math.sqrt(6 / (before * size * size)))
        return self.add("Conv", [x, weight, self.weight([after], 0.1)], kernel_shape=[size, size],
                        strides=[stride, stride], pads=[size // 2] * 4, dilations=[1, 1], group=1)

    def dense(self, x, before, after):
        weight = self.weight([before, after], math.sqrt(6 / before))
        return self.add("Gemm", [x, weight, self.weight([after], 0.1)])

    def relu(self, x):
        return self.add("Relu", [x])

    def pool(self, x, pads):
        return self.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=pads)

    def lrn(self, x):
        return self.add("LRN", [x], size=9, alpha=0.001, beta=0.75, bias=1.0)

    def save(self, path, output, classes):
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        x = helper.make_tensor_value_info("x", kind, ["n", *self.input_dims])
        y = helper.make_tensor_value_info(output, kind, ["n", classes])
        graph = helper.make_graph(self.nodes, "network", [x], [y], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        self.onnx.save(model, path)


def onnx_mlp(path):
    g = OnnxGraph([784])
    x = g.relu(g.dense("x", 784, 512))
    x = g.relu(g.dense(x, 512, 512))
    g.save(path, g.dense(x, 512, 10), 10)


def onnx_tutorial_cnn(path):
    g = OnnxGraph([3, 24, 24])
    x = g.relu(g.conv("x", 3, 64, 5, 1))
    x = g.lrn(g.pool(x, [0, 0, 1, 1]))
    x = g.lrn(g.relu(g.conv(x, 64, 64, 5, 1)))
    x = g.add("Flatten", [g.pool(x, [0, 0, 1, 1])])
    x = g.relu(g.dense(x, 2304, 384))
    x = g.relu(g.dense(x, 384, 192))
    g.save(path, g.dense(x, 192, 10), 10)


def onnx_resnet50(path):
    g = OnnxGraph([3, 224, 224])
    x, channels = g.pool(g.relu(g.conv("x", 3, 64, 7, 2)), [1, 1, 1, 1]), 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for i in range(blocks):
            stride = 2 if i == 0 and stage > 0 else 1
            y = g.relu(g.conv(x, channels, width, 1, 1))
            y = g.relu(g.conv(y, width, width, 3, stride))
            y = g.conv(y, width, 4 * width, 1, 1)
            shortcut = g.conv(x, channels, 4 * width, 1, stride) if i == 0 else x
            x, channels = g.relu(g.add("Add", [y, shortcut])), 4 * width
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    g.save(path, g.dense(x, 2048, 1000), 1000)


ONNX = {"mlp": onnx_mlp, "tutorial-cnn": onnx_tutorial_cnn, "resnet50": onnx_resnet50}
INPUT_DIMS = {"mlp": [784], "tutorial-cnn": [3, 24, 24], "resnet50": [3, 224, 224]}


def torch_network(torch, name):
    """The network in PyTorch, with random weights."""
    nn = torch.nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if name == "tutorial-cnn":
        def pool():
            return nn.Sequential(nn.ConstantPad2d((0, 1, 0, 1), -math.inf), nn.MaxPool2d(3, 2))
        lrn = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        return nn.Sequential(nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), lrn, nn.Conv2d(64, 64, 5, padding=2),
                             nn.ReLU(), lrn, pool(), nn.Flatten(), nn.Linear(2304, 384), nn.ReLU(),
                             nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))
    import torchvision
    return torchvision.models.resnet50()


# ---- The programs --------------------------------------------------------------------------------------------------
#
# A side has `name`, block(runs), which returns the seconds of a run, and close().


class Tutti:
    """bench_inference, which executes commands from its standard input."""

    name = "tutti"

    def __init__(self, options, case, folder, device="cpu:0", arguments=()):
        self.result = Path(folder) / "tutti.f32"
        self.process = subprocess.Popen(
            [options.bench, case.network, str(case.threads), str(case.batch), str(self.result), "--device", device,
             "--precision", case.precision, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def block(self, runs, command=""):
        self.process.stdin.write(f"{command}{runs}\n")
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare: {self.process.args[0]} has ended")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class TuttiResident:
    """The same process: runs on images in the GPU's memory."""

    name = "tutti"

    def __init__(self, tutti):
        self.tutti = tutti

    def block(self, runs):
        return self.tutti.block(runs, "resident ")

    def close(self):
        pass


class Peer:
    """A function in this process. `synchronize` waits until all its runs are done."""

    def __init__(self, name, run, synchronize=None):
        self.name, self.run, self.synchronize = name, run, synchronize

    def block(self, runs):
        start = time.perf_counter()
        for _ in range(runs):
            self.run()
        if self.synchronize:
            self.synchronize()
        return (time.perf_counter() - start) / runs

    def close(self):
        pass


def load(module):
    try:
        return __import__(module)
    except ImportError as error:
        raise Unavailable(f"{module} is not installed ({error})") from error


def torch_side(case, _folder):
    torch = load("torch")
    torch.set_num_threads(case.threads)
    network = torch_network(torch, case.network).eval()
    x = torch.randn(case.batch, *INPUT_DIMS[case.network])
    if x.dim() == 4:
        network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def run():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"):
            network(x)
    return Peer("torch", run)


def ort_side(case, folder):
    if case.precision != "f32":
        raise Unavailable("")  # ONNX Runtime has no bf16 on CPUs
    runtime, np = load("onnxruntime"), load("numpy")
    load("onnx")
    path = Path(folder) / f"{case.network}.onnx"
    if not path.exists():
        ONNX[case.network](str(path))
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = case.threads, 3
    session = runtime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    dims = [case.batch, *INPUT_DIMS[case.network]]
    x = numbers(np, INPUT_TENSOR, math.prod(dims), 1).astype(np.float32).reshape(dims)
    side = Peer("ort", None)

    def run():
        side.result = session.run(None, {"x": x})[0]
    side.run = run
    return side


def difference(tutti, ort):
    """The largest difference of the results, relative to the largest result."""
    if not ort:
        return None
    np = load("numpy")
    ours = np.fromfile(tutti.result, dtype=np.float32).reshape(ort.result.shape)
    return float(np.abs(ours - ort.result).max() / np.abs(ort.result).max())


# ---- Measuring -----------------------------------------------------------------------------------------------------


class Case:
    def __init__(self, network, threads, text):
        self.network, self.threads = network, threads
        self.precision, batch = text.split(":")
        self.batch = int(batch)


def measure(sides, rounds, seconds, end):
    """Returns {name: seconds of a run, one per round}. Stops before `rounds` if the time is up."""
    for side in sides:
        side.block(1)
    first = max(side.block(1) for side in sides)
    runs = max(1, min(5000, round(seconds / first)))
    times = {side.name: [] for side in sides}
    for i in range(rounds):
        if i >= MIN_ROUNDS and time.perf_counter() > end:
            break
        for side in sides if i % 2 == 0 else sides[::-1]:
            time.sleep(PAUSE_SECONDS)
            times[side.name].append(side.block(runs))
    return times


def summarize(times, ours, others):
    """Adds the medians, and the median ratio of `ours` to each of `others`."""
    row = {"rounds": len(times[ours]), "all_ms": {name: [1e3 * s for s in list_] for name, list_ in times.items()}}
    row["ms"] = {name: 1e3 * statistics.median(list_) for name, list_ in times.items()}
    row["ratio"] = {name: statistics.median(a / b for a, b in zip(times[ours], times[name])) for name in others}
    return row


def print_row(cells, widths):
    print("  ".join(str(cell).rjust(width) if i else str(cell).ljust(width)
                    for i, (cell, width) in enumerate(zip(cells, widths))), flush=True)


def shown(value, form):
    return "-" if value is None else format(value, form)


# ---- CPU -----------------------------------------------------------------------------------------------------------


def measure_case(options, case, folder, end, skipped):
    tutti, peers = Tutti(options, case, folder), []
    for name in options.sides:
        try:
            peers.append({"torch": torch_side, "ort": ort_side}[name](case, folder))
        except Unavailable as reason:
            if str(reason) and name not in skipped:
                notice(f"{name} is skipped: {reason}")
                skipped.add(name)
    times = measure([tutti, *peers], options.rounds, options.seconds, end)
    row = {"network": case.network, "threads": case.threads, "precision": case.precision, "batch": case.batch}
    row |= summarize(times, "tutti", [peer.name for peer in peers])
    row["difference"] = difference(tutti, next((peer for peer in peers if peer.name == "ort"), None))
    tutti.close()
    return row


def print_case(row, widths):
    ms, ratio = row["ms"], row["ratio"]
    best = min(ratio, key=lambda name: ms[name], default=None)
    print_row([row["network"], row["threads"], row["precision"], row["batch"], shown(ms["tutti"], ".4g"),
               shown(ms.get("torch"), ".4g"), shown(ratio.get("torch"), ".3f"), shown(ms.get("ort"), ".4g"),
               shown(ratio.get("ort"), ".3f"), shown(ratio.get(best), ".3f"), shown(row["difference"], ".1e"),
               row["rounds"]], widths)


def cpu_cases(options):
    """Small networks first, so that the time they leave goes to the large one."""
    return [Case(network, threads, text) for network in options.networks
            for threads in read_integers(options.threads or CPU_THREADS[network])
            for text in (options.cases or CPU_CASES[network]).split(",")]


def compare_cpu(options, folder):
    cases, rows, skipped = cpu_cases(options), [], set()
    titles = ["network", "threads", "type", "batch", "Tutti ms", "torch ms", "ratio", "ORT ms", "ratio", "best",
              "difference", "rounds"]
    widths = [13, 7, 5, 6, 9, 9, 6, 9, 6, 6, 10, 6]
    print_row(titles, widths)
    for i, case in enumerate(cases):
        left = options.limit - (time.perf_counter() - options.began)
        rows.append(measure_case(options, case, folder, time.perf_counter() + left / (len(cases) - i), skipped))
        print_case(rows[-1], widths)
        write_json(options, rows)
    return rows


# ---- GPU -----------------------------------------------------------------------------------------------------------


def torch_gpu_sides(torch, batch):
    """resnet50 compiled in bf16: on images in the GPU's memory, and with copies from and to the host."""
    network = torch_network(torch, "resnet50").eval().cuda().to(memory_format=torch.channels_last).to(torch.bfloat16)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last).to(torch.bfloat16)
    host = x.cpu().pin_memory()
    # Each batch size is a compilation of its own: without this, the second would be compiled for any size.
    compiled = torch.compile(network, mode="reduce-overhead" if batch < 64 else None, dynamic=False)

    def resident():
        with torch.inference_mode():
            compiled(x)

    def with_copies():
        with torch.inference_mode():
            x.copy_(host, non_blocking=True)
            compiled(x).cpu()
    for _ in range(4):  # compiles, warms up and captures
        resident()
    torch.cuda.synchronize()
    wait = torch.cuda.synchronize
    return [Peer("torch", resident, wait), Peer("torch, with copies", with_copies, wait)]


def prepare_torch(options):
    """Compiles for all batch sizes. Returns {batch: sides}."""
    sides = {batch: [] for batch in options.batches}
    if "torch" not in options.sides:
        return sides
    try:
        torch = load("torch")
        if not torch.cuda.is_available():
            raise Unavailable("PyTorch finds no GPU")
        for batch in options.batches:
            start = time.perf_counter()
            sides[batch] = torch_gpu_sides(torch, batch)
            notice(f"PyTorch compiled resnet50 for batch {batch} in {time.perf_counter() - start:.0f} s")
    except Unavailable as reason:
        notice(f"torch is skipped: {reason}")
    return sides


def wait_for(path):
    while path and not Path(path).exists():
        time.sleep(0.2)


def measure_gpu_case(options, batch, peers, folder, end):
    case = Case("resnet50", 0, f"bf16:{batch}")
    tutti = Tutti(options, case, folder, options.device, ["--input", "bf16", *(["--tune"] if options.tune else [])])
    tutti.name = "tutti, with copies"
    times = measure([TuttiResident(tutti), tutti, *peers], options.rounds, options.seconds, end)
    row = {"network": case.network, "device": options.device, "precision": "bf16", "batch": batch}
    row |= summarize(times, "tutti", [peer.name for peer in peers])
    if peers:
        row["ratio"]["torch, with copies"] = statistics.median(
            a / b for a, b in zip(times["tutti, with copies"], times["torch, with copies"]))
    tutti.close()
    return row


def compare_gpu(options, folder):
    peers = prepare_torch(options)
    wait_for(options.after)
    options.began = max(options.began, time.perf_counter())  # the limit is for what follows
    titles = ["batch", "Tutti ms", "torch ms", "ratio", "with copies", "torch", "ratio", "rounds"]
    widths = [5, 9, 9, 6, 11, 9, 6, 6]
    print_row(titles, widths)
    rows = []
    for i, batch in enumerate(options.batches):
        left = options.limit - (time.perf_counter() - options.began)
        end = time.perf_counter() + left / (len(options.batches) - i)
        rows.append(measure_gpu_case(options, batch, peers[batch], folder, end))
        ms, ratio = rows[-1]["ms"], rows[-1]["ratio"]
        print_row([batch, shown(ms["tutti"], ".4f"), shown(ms.get("torch"), ".4f"), shown(ratio.get("torch"), ".3f"),
                   shown(ms["tutti, with copies"], ".4f"), shown(ms.get("torch, with copies"), ".4f"),
                   shown(ratio.get("torch, with copies"), ".3f"), rows[-1]["rounds"]], widths)
        write_json(options, rows)
    return rows


# ---- Command line --------------------------------------------------------------------------------------------------


def read_integers(text):
    return [int(word) for word in text.split(",")]


def read_options():
    parser = argparse.ArgumentParser(description="Compares inference of Tutti with PyTorch and ONNX Runtime.")
    parser.add_argument("bench", metavar="BENCH_INFERENCE", help="the program bench_inference of a build")
    parser.add_argument("--networks", default="mlp,tutorial-cnn,resnet50", metavar="LIST", help="default %(default)s")
    parser.add_argument("--sides", default="torch,ort", metavar="LIST", help="others to measure, default %(default)s")
    parser.add_argument("--threads", metavar="LIST", help="default 16,2,1; for resnet50 16,2")
    parser.add_argument("--cases", metavar="LIST", help="precisions and batch sizes, as in f32:1,bf16:32")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="time of a block, default %(default)s")
    parser.add_argument("--limit", type=float, default=150, metavar="S",
                        help=f"after this time at most {MIN_ROUNDS} rounds per case, default %(default)s")
    parser.add_argument("--json", metavar="FILE", help="also write the times of all rounds")
    parser.add_argument("--gpu", action="store_true", help="resnet50 in bf16 on a GPU")
    parser.add_argument("--device", default="gpu:0", metavar="NAME", help="of Tutti, with --gpu; default %(default)s")
    parser.add_argument("--batches", default="1,8,256", metavar="LIST", help="with --gpu; default %(default)s")
    parser.add_argument("--tune", action="store_true",
                        help="with --gpu: Tutti times the kernels of libraries and takes the fastest")
    parser.add_argument("--after", metavar="FILE", help="with --gpu: after PyTorch has compiled, wait until FILE "
                        "exists, so that Tutti can be built meanwhile")
    parser.add_argument("--dry-run", action="store_true", help="only print the cases")
    options = parser.parse_args()
    options.networks, options.sides = options.networks.split(","), options.sides.split(",")
    for words, known, what in ((options.networks, ONNX, "networks"), (options.sides, (*SIDES, ""), "sides")):
        unknown = [word for word in words if word not in known]
        if unknown:
            parser.error(f"--{what}: unknown {unknown[0]!r}: expected some of {', '.join(known)}")
    try:
        options.batches = read_integers(options.batches)
        cpu_cases(options)
    except ValueError as error:
        parser.error(f"--threads, --batches and --cases: expected numbers, and cases such as f32:1: {error}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds: expected numbers above 0")
    options.began = time.perf_counter()
    return options


def write_json(options, rows):
    if options.json:
        machine = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        Path(options.json).write_text(json.dumps(machine | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def describe(options):
    versions = []
    for name in ("torch", "torchvision", "onnxruntime"):
        try:
            versions.append(f"{name} {load(name).__version__}")
        except Unavailable:
            versions.append(f"no {name}")
    print(f"{os.cpu_count()} cores; {', '.join(versions)}; at most {options.rounds} rounds", flush=True)


def main():
    options = read_options()
    warnings.filterwarnings("ignore")
    if options.dry_run:
        for case in [Case("resnet50", 0, f"bf16:{b}") for b in options.batches] if options.gpu else cpu_cases(options):
            print(case.network, f"threads {case.threads}", case.precision, f"batch {case.batch}")
        return
    describe(options)
    with tempfile.TemporaryDirectory(prefix="tutti-inference-") as folder:
        (compare_gpu if options.gpu else compare_cpu)(options, folder)
    print(f"{time.perf_counter() - options.began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
