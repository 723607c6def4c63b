"""The workloads of `tutti bench`, written for PyTorch and for JAX: what compare.py measures Tutti against.

Each is the same mathematics over a batch of the same shape: forward, mean cross-entropy, backward, gradient descent
with rate 0.01 and momentum 0.9, on data already in memory. What each framework does best by itself is used: PyTorch
computes convolutions in its channels-last layout, JAX compiles the whole step and reuses its buffers. Two things differ
in form but not in cost: weights are drawn by each framework's own generator, and PyTorch pads windows of stride 2 on
both sides where TensorFlow's rule ("same"), Tutti and JAX pad on one.

    python3 peers.py torch --threads 2

is a server that compare.py talks to, so that imports and compiling stay out of what is timed. It writes one JSON object
a line: first who it is; then an answer to each request it reads.

    {"do": "prepare", "workload": "mlp", "batch": 128, "precision": "f32"}   ->  {"ms": 3.6}   after warming up
    {"do": "block", "steps": 100}                                            ->  {"ms": 3.5}   mean of a step
Anything that fails is answered by {"error": "..."}.
"""

import argparse
import json
import os
import sys
import time

RATE, MOMENTUM = 0.01, 0.9
IMAGE = {"mlp": (28, 28, 1), "tutorial-cnn": (24, 24, 3), "resnet20": (32, 32, 3)}
CLASSES = 10


# ---- PyTorch ----------------------------------------------------------------------------------------------------


class Torch:
    """Eager PyTorch; with `compiled`, torch.compile over the network."""

    def __init__(self, threads, compiled=False):
        import torch

        self.torch, self.compiled = torch, compiled
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.version = torch.__version__.split("+")[0]

    def prepare(self, workload, batch, precision):
        torch = self.torch
        functional = torch.nn.functional
        network = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20}[workload]()
        height, width, channels = IMAGE[workload]
        x = torch.randn(batch, channels, height, width)
        y = torch.randint(0, CLASSES, (batch,))
        if workload != "mlp":
            network, x = (thing.to(memory_format=torch.channels_last) for thing in (network, x))
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
        forward = torch.compile(network) if self.compiled else network
        half = precision == "bf16"

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                loss = functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()

        self.step = step

    def block(self, steps):
        for _ in range(steps):
            self.step()

    def mlp(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, CLASSES))

    def tutorial_cnn(self):
        nn = self.torch.nn

        def normalize():  # PyTorch divides alpha by the size: 0.001 / 9, as the tutorial has it
            return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)

        def pool():
            return nn.MaxPool2d(3, 2, padding=1)

        return nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), normalize(),
            nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), normalize(), pool(),
            nn.Flatten(), nn.Linear(2304, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES))

    def resnet20(self):
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
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


# ---- JAX --------------------------------------------------------------------------------------------------------


class Jax:
    """The whole step as one jitted function that may reuse the memory of what it replaces."""

    def __init__(self, threads):
        # XLA's pool has a thread for each core that the process may use: there is no other setting for it.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        self.jax = jax
        jax.config.update("jax_default_matmul_precision", "highest")
        self.version = jax.__version__

    def prepare(self, workload, batch, precision):
        jax = self.jax
        jnp = jax.numpy
        kind = jnp.bfloat16 if precision == "bf16" else jnp.float32
        make = {"mlp": self.mlp, "tutorial-cnn": self.tutorial_cnn, "resnet20": self.resnet20}[workload]
        parameters, statistics, forward = make()
        key = jax.random.PRNGKey(1)
        x = jax.random.normal(key, (batch, *IMAGE[workload]))
        y = jax.random.randint(key, (batch,), 0, CLASSES)

        def loss(parameters, statistics, x, y):
            parameters = jax.tree.map(lambda p: p.astype(kind), parameters)
            logits, statistics = forward(parameters, statistics, x.astype(kind))
            logs = jax.nn.log_softmax(logits.astype(jnp.float32))
            return -jnp.take_along_axis(logs, y[:, None], 1).mean(), statistics

        def step(parameters, velocities, statistics, x, y):
            gradients, statistics = jax.grad(loss, has_aux=True)(parameters, statistics, x, y)
            velocities = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
            parameters = jax.tree.map(lambda p, v: p - RATE * v, parameters, velocities)
            return parameters, velocities, statistics

        self.step = jax.jit(step, donate_argnums=(0, 1, 2))
        self.state = (parameters, jax.tree.map(jnp.zeros_like, parameters), statistics)
        self.data = (x, y)

    def block(self, steps):
        for _ in range(steps):
            self.state = self.step(*self.state, *self.data)
        self.jax.block_until_ready(self.state)

    # A network is its parameters, its running statistics, and a function of these and a batch to logits and new
    # statistics.

    def draw(self):
        """A function that gives parameters of a shape, differently at each call."""
        keys = iter(self.jax.random.split(self.jax.random.PRNGKey(2), 64))
        return lambda *shape: 0.05 * self.jax.random.normal(next(keys), shape)

    def convolve(self, x, w, stride=1):
        return self.jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def mlp(self):
        jnp, relu, draw = self.jax.numpy, self.jax.nn.relu, self.draw()
        sizes = (784, 512, 512, CLASSES)
        parameters = [(draw(a, b), jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]

        def forward(p, statistics, x):
            x = x.reshape(x.shape[0], -1)
            for w, b in p[:-1]:
                x = relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1], statistics

        return parameters, (), forward

    def tutorial_cnn(self):
        jnp, lax, relu, draw = self.jax.numpy, self.jax.lax, self.jax.nn.relu, self.draw()
        shapes = ((5, 5, 3, 64), (5, 5, 64, 64), (2304, 384), (384, 192), (192, CLASSES))
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

    def resnet20(self):
        jnp, relu, draw = self.jax.numpy, self.jax.nn.relu, self.draw()
        layout = [(16, 1)] * 3 + [(32, 2)] + [(32, 1)] * 2 + [(64, 2)] + [(64, 1)] * 2
        parameters, statistics = [], []

        def add(size, before, after):  # a convolution and its normalisation: filters, scale, shift
            parameters.append((draw(size, size, before, after), jnp.ones(after), jnp.zeros(after)))
            statistics.append((jnp.zeros(after), jnp.ones(after)))

        add(3, 3, 16)
        before = 16
        for after, stride in layout:
            add(3, before, after)
            add(3, after, after)
            if stride != 1 or before != after:
                add(1, before, after)
            before = after
        dense = (draw(64, CLASSES), jnp.zeros(CLASSES))

        def layer(p, s, x, stride=1):
            w, scale, shift = p
            y = self.convolve(x, w, stride)
            wide = y.astype(jnp.float32)
            mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
            y = (wide - mean) * (scale / jnp.sqrt(variance + 1e-5)) + shift
            running = tuple(0.9 * old + 0.1 * new for old, new in zip(s, (mean, variance)))
            return y.astype(x.dtype), running

        def forward(p, s, x):
            convolutions, (w, b) = p
            pairs, running = iter(zip(convolutions, s)), []

            def apply(x, stride=1):
                y, new = layer(*next(pairs), x, stride)
                running.append(new)
                return y

            x = relu(apply(x))
            for after, stride in layout:
                y = apply(relu(apply(x, stride)))
                x = relu(y + (apply(x, stride) if stride != 1 or x.shape[-1] != after else x))
            return x.mean((1, 2)) @ w + b, running

        return (parameters, dense), statistics, forward


# ---- The server -------------------------------------------------------------------------------------------------

PEERS = {"torch": Torch, "torch-compile": lambda threads: Torch(threads, compiled=True), "jax": Jax}
WARM_SECONDS, LEAST_WARM_STEPS = 0.5, 3


def timed_block(peer, steps):
    start = time.perf_counter()
    peer.block(steps)
    return 1e3 * (time.perf_counter() - start) / steps


def warm_up(peer):
    peer.block(1)  # compiles
    start, steps = time.perf_counter(), 0
    while steps < LEAST_WARM_STEPS or time.perf_counter() - start < WARM_SECONDS:
        ms = timed_block(peer, 1)
        steps += 1
    return ms


def answer(peer, request):
    if request["do"] == "prepare":
        peer.prepare(request["workload"], request["batch"], request["precision"])
        return {"ms": warm_up(peer)}
    return {"ms": timed_block(peer, request["steps"])}


def describe(error):
    return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}


def main():
    parser = argparse.ArgumentParser(description="Runs Tutti's workloads in another framework, for compare.py.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    # Whatever a framework prints goes to stderr: standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(what):
        answers.write(json.dumps(what) + "\n")

    try:
        peer = PEERS[arguments.peer](arguments.threads)
    except ImportError as error:
        say(describe(error))
        return
    say({"peer": arguments.peer, "version": peer.version, "threads": arguments.threads})
    for line in sys.stdin:
        try:
            say(answer(peer, json.loads(line)))
        except Exception as error:  # pylint: disable=broad-except; compare.py tells of it and goes on
            say(describe(error))


if __name__ == "__main__":
    main()
