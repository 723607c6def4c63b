"""The workloads of `tutti bench`, written for PyTorch and for JAX: what compare.py and gpu.py measure Tutti against.

Each is the same mathematics over a batch of the same shape: forward, mean cross-entropy, backward, gradient descent
with rate 0.01 and momentum 0.9, on data already in the device's memory. What each framework does best by itself is
used: PyTorch computes convolutions in its channels-last layout, JAX compiles the whole step and reuses its buffers; on
a GPU cuDNN may time its algorithms, and PyTorch's update is its fused one. Two things differ in form but not in cost:
weights are drawn by each framework's own generator, and PyTorch pads windows of stride 2 on both sides where
TensorFlow's rule ("same"), Tutti and JAX pad on one.

    torch           eager
    torch-graph     a GPU's step, captured once and replayed
    torch-compile   torch.compile over the network; on a GPU in its mode "reduce-overhead", but for resnet50
    jax             the whole step jitted
    jax-loop        a hundred steps jitted as one loop

    python3 peers.py torch --threads 2
    python3 peers.py torch-graph --device gpu

is a server that stays, so that imports and compiling are out of what is timed. It writes one JSON object a line: first
who it is; then an answer to each request it reads.

    {"do": "prepare", "workload": "mlp", "batch": 128, "precision": "f32"}   ->  {"ms": 3.6}   after warming up
    {"do": "block", "steps": 100}                                            ->  {"ms": 3.5}   mean of a step
    {"do": "ceilings"}                  ->  {"copy_gbs": 4300, "product_tflops": 790}   PyTorch's on a GPU
Anything that fails is answered by {"error": "..."}.
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
    """PyTorch in one of its ways to run a step: "eager", "compile" or "graph"."""

    def __init__(self, threads, device, way="eager"):
        import torch

        self.torch, self.way, self.on_gpu = torch, way, device == "gpu"
        self.device = "cuda" if self.on_gpu else "cpu"
        if way == "graph" and not self.on_gpu:
            raise ValueError("only a GPU's steps can be captured: expected --device gpu")
        if self.on_gpu and not torch.cuda.is_available():
            raise ValueError("PyTorch sees no GPU")
        if threads:
            torch.set_num_threads(threads)
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        self.version = torch.__version__.split("+")[0]

    def forget(self):
        """Gives back what the workload before took."""
        self.step = self.kept = None
        gc.collect()
        if self.way == "compile":
            self.torch._dynamo.reset()  # pylint: disable=protected-access; there is no other name for it
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def prepare(self, workload, batch, precision):
        torch = self.torch
        self.forget()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
        makers = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20,
                  "resnet50": self.resnet50}
        network = makers[workload](CLASSES[workload]).to(self.device)
        height, width, channels = IMAGE[workload]
        x = torch.randn(batch, channels, height, width, device=self.device)
        y = torch.randint(0, CLASSES[workload], (batch,), device=self.device)
        if workload != "mlp":
            network, x = (thing.to(memory_format=torch.channels_last) for thing in (network, x))
        self.step = self.make_step(workload, network, x, y, precision == "bf16")

    def make_step(self, workload, network, x, y, half):
        torch = self.torch
        fused = {"fused": True} if self.on_gpu else {}
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, **fused)
        forward = self.compiled(network, workload) if self.way == "compile" else network

        def learn():
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()

        def step():
            optimizer.zero_grad(set_to_none=True)
            learn()

        return self.captured(step, learn, optimizer) if self.way == "graph" else step

    def compiled(self, network, workload):
        small = self.on_gpu and workload != "resnet50"
        return self.torch.compile(network, mode="reduce-overhead" if small else None)

    def captured(self, step, learn, optimizer):
        """The step as a CUDA graph, as PyTorch's notes on CUDA graphs have it. Its tensors must stay where they are."""
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
            learn()
        self.kept = learn
        return graph.replay

    def wait(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def block(self, steps):
        for _ in range(steps):
            self.step()
        self.wait()
        return steps

    def seconds_of(self, work):
        """By the card's own clock, the median of 20 after 5 that warm up."""
        times = []
        for _ in range(25):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            self.wait()
            times.append(1e-3 * begin.elapsed_time(end))
        return statistics.median(times[5:])

    def ceilings(self):
        """Bytes read and written by copies of 1 GiB, and the rate of a product of 8192 x 8192 in bf16."""
        torch, size = self.torch, 8192
        if not self.on_gpu:
            raise ValueError("ceilings are measured on a GPU")
        self.forget()
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

        def normalize():  # PyTorch divides alpha by the size: 0.001 / 9, as the tutorial has it
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
    """The whole step as one jitted function that may reuse the memory of what it replaces; with `loop`, a hundred."""

    def __init__(self, threads, device, loop=False):
        # XLA's pool has a thread for each core that the process may use: there is no other setting for it.
        if threads and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.environ["JAX_PLATFORMS"] = "cuda" if device == "gpu" else "cpu"
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the card is shared with the other sides
        import jax

        self.jax, self.on_gpu, self.steps_of_a_call = jax, device == "gpu", 100 if loop else 1
        jax.devices()  # fails here where there is no such device
        self.version = jax.__version__

    def prepare(self, workload, batch, precision):
        jax = self.jax
        jnp = jax.numpy
        self.step = self.state = self.data = None
        jax.clear_caches()
        rounded = self.on_gpu and precision != "f32"
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if rounded else "highest")
        kind = jnp.bfloat16 if precision == "bf16" else jnp.float32
        makers = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20,
                  "resnet50": self.resnet50}
        parameters, running, forward = makers[workload](CLASSES[workload])
        key = jax.random.PRNGKey(1)
        x = jax.random.normal(key, (batch, *IMAGE[workload]))
        y = jax.random.randint(key, (batch,), 0, CLASSES[workload])

        def loss(parameters, running, x, y):
            parameters = jax.tree.map(lambda p: p.astype(kind), parameters)
            logits, running = forward(parameters, running, x.astype(kind))
            logs = jax.nn.log_softmax(logits.astype(jnp.float32))
            return -jnp.take_along_axis(logs, y[:, None], 1).mean(), running

        def step(parameters, velocities, running, x, y):
            gradients, running = jax.grad(loss, has_aux=True)(parameters, running, x, y)
            velocities = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
            parameters = jax.tree.map(lambda p, v: p - RATE * v, parameters, velocities)
            return parameters, velocities, running

        def steps(parameters, velocities, running, x, y):
            state = (parameters, velocities, running)
            return jax.lax.fori_loop(0, self.steps_of_a_call, lambda _, s: step(*s, x, y), state)

        self.step = jax.jit(steps if self.steps_of_a_call > 1 else step, donate_argnums=(0, 1, 2))
        self.state = (parameters, jax.tree.map(jnp.zeros_like, parameters), running)
        self.data = (x, y)

    def block(self, steps):
        calls = -(-steps // self.steps_of_a_call)
        for _ in range(calls):
            self.state = self.step(*self.state, *self.data)
        self.jax.block_until_ready(self.state)
        return calls * self.steps_of_a_call

    # A network is its parameters, its running statistics, and a function of these and a batch to logits and new
    # statistics.

    def draw(self):
        """A function that gives parameters of a shape, differently at each call."""
        keys = iter(self.jax.random.split(self.jax.random.PRNGKey(2), 64))
        return lambda *shape: 0.05 * self.jax.random.normal(next(keys), shape)

    def convolve(self, x, w, stride=1):
        return self.jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def mlp(self, classes):
        jnp, relu, draw = self.jax.numpy, self.jax.nn.relu, self.draw()
        sizes = (784, 512, 512, classes)
        parameters = [(draw(a, b), jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]

        def forward(p, statistics, x):
            x = x.reshape(x.shape[0], -1)
            for w, b in p[:-1]:
                x = relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1], statistics

        return parameters, (), forward

    def tutorial_cnn(self, classes):
        jnp, lax, relu, draw = self.jax.numpy, self.jax.lax, self.jax.nn.relu, self.draw()
        shapes = ((5, 5, 3, 64), (5, 5, 64, 64), (2304, 384), (384, 192), (192, classes))
        parameters = [(draw(*shape), jnp.zeros(shape[-1])) for shape in shapes]

        def pool(x):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

        def normalize(x):
            near = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, 9), (1, 1, 1, 1), "SAME")
            return x * (1 + 0.001 / 9 * near) ** -0.75

        def forward(p, statistics, x):
            x = normalize(pool(relu(self.convolve(x, p[0][0]) + p[0][1])))
            x = pool(normalize(relu(self.convolve(x, p[1][0]) + p[1][1])))
            x = x.reshape(x.shape[0], -1)
            for w, b in p[2:-1]:
                x = relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1], statistics

        return parameters, (), forward

    def normalized(self, shapes, features, classes, body):
        """A network of convolutions of these shapes (size, before, after), each normalised over its batch; `body`
        applies them in this order. A dense layer over the mean of what it gives ends the network."""
        jnp, draw = self.jax.numpy, self.draw()
        # Filters, scale, shift; running mean and variance.
        parameters = [(draw(size, size, before, after), jnp.ones(after), jnp.zeros(after))
                      for size, before, after in shapes]
        running = [(jnp.zeros(after), jnp.ones(after)) for _, _, after in shapes]
        dense = (draw(features, classes), jnp.zeros(classes))

        def layer(p, s, x, stride=1):
            w, scale, shift = p
            y = self.convolve(x, w, stride)
            wide = y.astype(jnp.float32)
            mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
            y = (wide - mean) * (scale / jnp.sqrt(variance + 1e-5)) + shift
            return y.astype(x.dtype), tuple(0.9 * old + 0.1 * new for old, new in zip(s, (mean, variance)))

        def forward(p, s, x):
            convolutions, (w, b) = p
            pairs, news = iter(zip(convolutions, s)), []

            def apply(x, stride=1):
                y, new = layer(*next(pairs), x, stride)
                news.append(new)
                return y

            return body(apply, x).mean((1, 2)) @ w + b, news

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

        return self.normalized(shapes, 64, classes, body)

    def resnet50(self, classes):
        jnp, lax, relu = self.jax.numpy, self.jax.lax, self.jax.nn.relu
        layout = [(width, stride if block == 0 else 1, block == 0)  # and whether the block's shortcut is a convolution
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

        return self.normalized(shapes, before, classes, body)


# ---- The server -------------------------------------------------------------------------------------------------

PEERS = {
    "torch": Torch,
    "torch-graph": lambda threads, device: Torch(threads, device, "graph"),
    "torch-compile": lambda threads, device: Torch(threads, device, "compile"),
    "jax": Jax,
    "jax-loop": lambda threads, device: Jax(threads, device, loop=True),
}
WARM_SECONDS, LEAST_WARM_BLOCKS = 0.5, 3


def timed_block(peer, steps):
    start = time.perf_counter()
    made = peer.block(steps)
    return 1e3 * (time.perf_counter() - start) / made


def warm_up(peer, steps):
    peer.block(1)  # compiles
    start, blocks = time.perf_counter(), 0
    while blocks < LEAST_WARM_BLOCKS or time.perf_counter() - start < WARM_SECONDS:
        ms = timed_block(peer, steps)
        blocks += 1
    return ms


def answer(peer, device, request):
    if request["do"] == "ceilings":
        return peer.ceilings()
    if request["do"] == "prepare":
        peer.prepare(request["workload"], request["batch"], request["precision"])
        return {"ms": warm_up(peer, 10 if device == "gpu" else 1)}  # one step of a GPU is mostly waiting for it
    return {"ms": timed_block(peer, request["steps"])}


def describe(error):
    return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}


def main():
    parser = argparse.ArgumentParser(description="Runs Tutti's workloads in another framework, for compare.py.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="0, the default: the framework's own")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    arguments = parser.parse_args()
    # Whatever a framework prints goes to stderr: standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(what):
        answers.write(json.dumps(what) + "\n")

    try:
        peer = PEERS[arguments.peer](arguments.threads, arguments.device)
    except (ImportError, RuntimeError, ValueError) as error:
        say(describe(error))
        return
    say({"peer": arguments.peer, "version": peer.version, "threads": arguments.threads})
    for line in sys.stdin:
        try:
            say(answer(peer, arguments.device, json.loads(line)))
        except Exception as error:  # pylint: disable=broad-except; compare.py tells of it and goes on
            say(describe(error))


if __name__ == "__main__":
    main()
