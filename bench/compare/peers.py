"""The workloads of `tutti bench` in PyTorch and JAX, with which compare.py and gpu.py compare Tutti.

Each computes the same with a batch of the same shape: forward, mean cross-entropy, backward, gradient descent with
learning rate 0.01 and momentum 0.9, on data that is already in the device's memory. Each framework uses its
fastest settings: PyTorch uses the channels-last layout, JAX jits the whole step and donates its buffers; on a GPU
cuDNN benchmarks its algorithms, and PyTorch uses the fused optimizer. Two things differ, but cost the same: the
random weights, and the padding of windows with stride 2, where PyTorch pads both sides and "same" padding
(TensorFlow, Tutti, JAX) only one.

    torch           eager
    torch-graph     the step captured as a CUDA graph and replayed; GPU only
    torch-compile   torch.compile of the network; on a GPU with mode "reduce-overhead", except for resnet50
    jax             the whole step jitted
    jax-loop        a loop of 100 steps jitted

    python3 peers.py torch --threads 2
    python3 peers.py torch-graph --device gpu

The program is a server, so that imports and compiling are not timed. It writes one JSON object per line: first its
name and version, then a response to each request.

    {"do": "prepare", "workload": "mlp", "batch": 128, "precision": "f32"}   ->  {"ms": 3.6}   after warming up
    {"do": "block", "steps": 100}                                            ->  {"ms": 3.5}   mean time per step
    {"do": "ceilings"}                  ->  {"copy_gbs": 4300, "product_tflops": 790}   only PyTorch on a GPU
If a request fails, the response is {"error": "..."}.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time

RATE, MOMENTUM = 0.01, 0.9
IMAGE = {"mlp": (28, 28, 1), "tutorial-cnn": (24, 24, 3), "resnet20": (32, 32, 3), "resnet50": (224, 224, 3)}
CLASSES = {"mlp": 10, "tutorial-cnn": 10, "resnet20": 10, "resnet50": 1000}


# ---- PyTorch ----------------------------------------------------------------------------------------------------


class Torch:
    """PyTorch. `mode` is how a step is run: "eager", "compile" or "graph"."""

    def __init__(self, threads, device, mode="eager"):
        import torch

        self.torch, self.mode, self.on_gpu = torch, mode, device == "gpu"
        self.device = "cuda" if self.on_gpu else "cpu"
        if mode == "graph" and not self.on_gpu:
            raise ValueError("torch-graph needs a GPU: expected --device gpu")
        if self.on_gpu and not torch.cuda.is_available():
            raise ValueError("PyTorch finds no GPU")
        if threads:
            torch.set_num_threads(threads)
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        self.version = torch.__version__.split("+")[0]

    def free_workload(self):
        """Frees the memory of the previous workload."""
        self.step = self.captured_step = None
        gc.collect()
        if self.mode == "compile":
            self.torch._dynamo.reset()  # pylint: disable=protected-access; there is no public name for it
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def prepare(self, workload, batch, precision):
        torch = self.torch
        self.free_workload()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
        builders = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20,
                  "resnet50": self.resnet50}
        network = builders[workload](CLASSES[workload]).to(self.device)
        height, width, channels = IMAGE[workload]
        x = torch.randn(batch, channels, height, width, device=self.device)
        y = torch.randint(0, CLASSES[workload], (batch,), device=self.device)
        if workload != "mlp":
            network, x = (thing.to(memory_format=torch.channels_last) for thing in (network, x))
        self.step = self.make_step(workload, network, x, y, precision == "bf16")

    def make_step(self, workload, network, x, y, use_bf16):
        torch = self.torch
        fused = {"fused": True} if self.on_gpu else {}
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, **fused)
        forward = self.compile_network(network, workload) if self.mode == "compile" else network

        def train_once():
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=use_bf16):
                loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()

        def step():
            optimizer.zero_grad(set_to_none=True)
            train_once()

        return self.capture(step, train_once, optimizer) if self.mode == "graph" else step

    def compile_network(self, network, workload):
        small = self.on_gpu and workload != "resnet50"
        return self.torch.compile(network, mode="reduce-overhead" if small else None)

    def capture(self, step, train_once, optimizer):
        """Captures the step as a CUDA graph, as described in PyTorch's documentation. Keeps its tensors alive."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            train_once()
        self.captured_step = train_once
        return graph.replay

    def synchronize(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def block(self, steps):
        for _ in range(steps):
            self.step()
        self.synchronize()
        return steps

    def seconds_of(self, work):
        """Returns the median of 20 runs, after 5 warm-up runs, measured with CUDA events."""
        times = []
        for _ in range(25):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            self.synchronize()
            times.append(1e-3 * begin.elapsed_time(end))
        return statistics.median(times[5:])

    def ceilings(self):
        """Measures the bandwidth of a copy of 1 GiB (read plus written) and an 8192 x 8192 matrix product in bf16."""
        torch, size = self.torch, 8192
        if not self.on_gpu:
            raise ValueError("ceilings can be measured only on a GPU")
        self.free_workload()
        source = torch.randint(0, 255, (2**30,), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        copying = self.seconds_of(lambda: target.copy_(source))
        a, b = (torch.randn(size, size, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        product = torch.empty_like(a)
        multiplying = self.seconds_of(lambda: torch.mm(a, b, out=product))
        return {"copy_gbs": 2e-9 * 2**30 / copying, "product_tflops": 2e-12 * size**3 / multiplying}

    def mlp(self, classes):
        nn = self.torch.nn
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, classes))

    def tutorial_cnn(self, classes):
        nn = self.torch.nn

        def normalize():  # PyTorch divides alpha by the size, which gives the tutorial's 0.001 / 9
            return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)

        def pool():
            return nn.MaxPool2d(3, 2, padding=1)

        return nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), normalize(),
            nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), normalize(), pool(),
            nn.Flatten(), nn.Linear(2304, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, classes))

    def resnet20(self, classes):
        nn = self.torch.nn

        def convolution(before, after, size, stride):
            return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)

        class Block(nn.Module):
            def __init__(self, before, after, stride):
                super().__init__()
                self.body = nn.Sequential(convolution(before, after, 3, stride), nn.BatchNorm2d(after), nn.ReLU(),
                                          convolution(after, after, 3, 1), nn.BatchNorm2d(after))
                self.shortcut = nn.Identity()
                if stride != 1 or before != after:
                    self.shortcut = nn.Sequential(convolution(before, after, 1, stride), nn.BatchNorm2d(after))
                self.relu = nn.ReLU()

            def forward(self, x):
                return self.relu(self.body(x) + self.shortcut(x))

        layers = [convolution(3, 16, 3, 1), nn.BatchNorm2d(16), nn.ReLU()]
        before = 16
        for after, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range(3):
                layers.append(Block(before, after, stride if i == 0 else 1))
                before = after
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))

    def resnet50(self, classes):
        import torchvision

        return torchvision.models.resnet50(num_classes=classes)


# ---- JAX --------------------------------------------------------------------------------------------------------


class Jax:
    """JAX. The whole step is one jitted function with donated buffers; with `loop`, 100 steps."""

    def __init__(self, threads, device, loop=False):
        # XLA starts one thread per core of the affinity mask; there is no other way to set their number.
        if threads and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.environ["JAX_PLATFORMS"] = "cuda" if device == "gpu" else "cpu"
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the GPU is shared with the other frameworks
        import jax

        self.jax, self.on_gpu, self.steps_per_call = jax, device == "gpu", 100 if loop else 1
        jax.devices()  # fails if there is no such device
        self.version = jax.__version__

    def prepare(self, workload, batch, precision):
        jax = self.jax
        jnp = jax.numpy
        self.step = self.state = self.data = None
        jax.clear_caches()
        rounded = self.on_gpu and precision != "f32"
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if rounded else "highest")
        dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
        builders = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20,
                  "resnet50": self.resnet50}
        parameters, running, forward = builders[workload](CLASSES[workload])
        key = jax.random.PRNGKey(1)
        x = jax.random.normal(key, (batch, *IMAGE[workload]))
        y = jax.random.randint(key, (batch,), 0, CLASSES[workload])

        def loss(parameters, running, x, y):
            parameters = jax.tree.map(lambda p: p.astype(dtype), parameters)
            logits, running = forward(parameters, running, x.astype(dtype))
            logs = jax.nn.log_softmax(logits.astype(jnp.float32))
            return -jnp.take_along_axis(logs, y[:, None], 1).mean(), running

        def step(parameters, velocities, running, x, y):
            gradients, running = jax.grad(loss, has_aux=True)(parameters, running, x, y)
            velocities = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
            parameters = jax.tree.map(lambda p, v: p - RATE * v, parameters, velocities)
            return parameters, velocities, running

        def steps(parameters, velocities, running, x, y):
            state = (parameters, velocities, running)
            return jax.lax.fori_loop(0, self.steps_per_call, lambda _, s: step(*s, x, y), state)

        self.step = jax.jit(steps if self.steps_per_call > 1 else step, donate_argnums=(0, 1, 2))
        self.state = (parameters, jax.tree.map(jnp.zeros_like, parameters), running)
        self.data = (x, y)

    def block(self, steps):
        calls = -(-steps // self.steps_per_call)
        for _ in range(calls):
            self.state = self.step(*self.state, *self.data)
        self.jax.block_until_ready(self.state)
        return calls * self.steps_per_call

    # A network consists of its parameters, its running statistics, and a function that maps these and a batch to logits
    # and new statistics.

    def new_parameters(self):
        """Returns a function that returns new random parameters of a shape at each call."""
        keys = iter(self.jax.random.split(self.jax.random.PRNGKey(2), 64))
        return lambda *shape: 0.05 * self.jax.random.normal(next(keys), shape)

    def convolve(self, x, w, stride=1):
        return self.jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def mlp(self, classes):
        jnp, relu, parameter = self.jax.numpy, self.jax.nn.relu, self.new_parameters()
        sizes = (784, 512, 512, classes)
        parameters = [(parameter(a, b), jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]

        def forward(p, statistics, x):
            x = x.reshape(x.shape[0], -1)
            for w, b in p[:-1]:
                x = relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1], statistics

        return parameters, (), forward

    def tutorial_cnn(self, classes):
        jnp, lax, relu, parameter = self.jax.numpy, self.jax.lax, self.jax.nn.relu, self.new_parameters()
        shapes = ((5, 5, 3, 64), (5, 5, 64, 64), (2304, 384), (384, 192), (192, classes))
        parameters = [(parameter(*shape), jnp.zeros(shape[-1])) for shape in shapes]

        def pool(x):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

        def normalize(x):
            window_sum = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, 9), (1, 1, 1, 1), "SAME")
            return x * (1 + 0.001 / 9 * window_sum) ** -0.75

        def forward(p, statistics, x):
            x = normalize(pool(relu(self.convolve(x, p[0][0]) + p[0][1])))
            x = pool(normalize(relu(self.convolve(x, p[1][0]) + p[1][1])))
            x = x.reshape(x.shape[0], -1)
            for w, b in p[2:-1]:
                x = relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1], statistics

        return parameters, (), forward

    def batch_normalized(self, shapes, features, classes, body):
        """Returns a network of convolutions with these shapes (size, channels before, channels after), each followed by
        batch normalisation. `body` applies them in this order. The network ends with average pooling and a dense layer."""
        jnp, parameter = self.jax.numpy, self.new_parameters()
        # Filters, scale, shift; running mean and variance.
        parameters = [(parameter(size, size, before, after), jnp.ones(after), jnp.zeros(after))
                      for size, before, after in shapes]
        running = [(jnp.zeros(after), jnp.ones(after)) for _, _, after in shapes]
        dense = (parameter(features, classes), jnp.zeros(classes))

        def layer(p, s, x, stride=1):
            w, scale, shift = p
            y = self.convolve(x, w, stride)
            wide = y.astype(jnp.float32)
            mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
            y = (wide - mean) * (scale / jnp.sqrt(variance + 1e-5)) + shift
            return y.astype(x.dtype), tuple(0.9 * old + 0.1 * new for old, new in zip(s, (mean, variance)))

        def forward(p, s, x):
            convolutions, (w, b) = p
            pairs, new_statistics = iter(zip(convolutions, s)), []

            def apply(x, stride=1):
                y, new = layer(*next(pairs), x, stride)
                new_statistics.append(new)
                return y

            return body(apply, x).mean((1, 2)) @ w + b, new_statistics

        return (parameters, dense), running, forward

    def resnet20(self, classes):
        relu = self.jax.nn.relu
        layout = [(16, 1)] * 3 + [(32, 2)] + [(32, 1)] * 2 + [(64, 2)] + [(64, 1)] * 2  # width, stride of each block
        shapes, before = [(3, 3, 16)], 16
        for after, stride in layout:
            shapes += [(3, before, after), (3, after, after)]
            shapes += [(1, before, after)] if stride != 1 or before != after else []
            before = after

        def body(apply, x):
            x = relu(apply(x))
            for after, stride in layout:
                y = apply(relu(apply(x, stride)))
                x = relu(y + (apply(x, stride) if stride != 1 or x.shape[-1] != after else x))
            return x

        return self.batch_normalized(shapes, 64, classes, body)

    def resnet50(self, classes):
        jnp, lax, relu = self.jax.numpy, self.jax.lax, self.jax.nn.relu
        layout = [(width, stride if block == 0 else 1, block == 0)  # width, stride, is the shortcut a convolution
                  for width, stride, blocks in ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3))
                  for block in range(blocks)]
        shapes, before = [(7, 3, 64)], 64
        for width, _, first in layout:
            shapes += [(1, before, width), (3, width, width), (1, width, 4 * width)]
            shapes += [(1, before, 4 * width)] if first else []
            before = 4 * width

        def body(apply, x):
            x = lax.reduce_window(relu(apply(x, 2)), -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
                                  ((0, 0), (1, 1), (1, 1), (0, 0)))
            for _, stride, first in layout:
                y = apply(relu(apply(relu(apply(x)), stride)))
                x = relu(y + (apply(x, stride) if first else x))
            return x

        return self.batch_normalized(shapes, before, classes, body)


# ---- Server -------------------------------------------------------------------------------------------------

PEERS = {
    "torch": Torch,
    "torch-graph": lambda threads, device: Torch(threads, device, "graph"),
    "torch-compile": lambda threads, device: Torch(threads, device, "compile"),
    "jax": Jax,
    "jax-loop": lambda threads, device: Jax(threads, device, loop=True),
}
WARMUP_SECONDS, MIN_WARMUP_BLOCKS = 0.5, 3


def timed_block(peer, steps):
    start = time.perf_counter()
    steps_run = peer.block(steps)
    return 1e3 * (time.perf_counter() - start) / steps_run


def warm_up(peer, steps):
    peer.block(1)  # compiles
    start, blocks = time.perf_counter(), 0
    while blocks < MIN_WARMUP_BLOCKS or time.perf_counter() - start < WARMUP_SECONDS:
        ms = timed_block(peer, steps)
        blocks += 1
    return ms


def respond(peer, device, request):
    if request["do"] == "ceilings":
        return peer.ceilings()
    if request["do"] == "prepare":
        peer.prepare(request["workload"], request["batch"], request["precision"])
        # The time of a single step on a GPU is mostly launch overhead.
        return {"ms": warm_up(peer, 10 if device == "gpu" else 1)}
    return {"ms": timed_block(peer, request["steps"])}


def error_response(error):
    return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}


def main():
    parser = argparse.ArgumentParser(description="Runs Tutti's workloads in another framework; a server for compare.py.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="0: the framework's default")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    arguments = parser.parse_args()
    # Standard output is for responses only: redirect what frameworks print to stderr.
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def write_response(what):
        responses.write(json.dumps(what) + "\n")

    try:
        peer = PEERS[arguments.peer](arguments.threads, arguments.device)
    except (ImportError, RuntimeError, ValueError) as error:
        write_response(error_response(error))
        return
    write_response({"peer": arguments.peer, "version": peer.version, "threads": arguments.threads})
    for line in sys.stdin:
        try:
            write_response(respond(peer, arguments.device, json.loads(line)))
        except Exception as error:  # pylint: disable=broad-except; compare.py reports it and continues
            write_response(error_response(error))


if __name__ == "__main__":
    main()
