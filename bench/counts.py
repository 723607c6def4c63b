#!/usr/bin/env python3
"""Counts the FLOPs and bytes of a training step from its shapes: the lower bounds in docs/performance.md.

    bench/counts.py                                   totals of all workloads
    bench/counts.py tutorial-cnn                      one row per kernel
    bench/counts.py tutorial-cnn --gflops 1500 --gbs 60
                                                      also the minimum time of each kernel on a machine with this
                                                      arithmetic throughput and memory bandwidth

The step is divided into kernels as in a well-fused implementation: bias, ReLU and its gradient are part of the
kernel before or after them, and the update of all variables is one kernel. Every kernel reads its inputs once and
writes its outputs once; batch normalisation and its gradient read their input twice (for the statistics and for
the values). A multiply-add counts as two operations. Caches are ignored, so a small workload can be faster than
its lower bound.
"""

import argparse
import sys

CLASSES = 10


class Step:
    """Collects kernels as (name, operations, bytes). Sizes are in elements."""

    def __init__(self, batch, element_bytes):
        self.batch, self.element_bytes = batch, element_bytes
        self.forward, self.backward, self.parameters = [], [], 0

    def add(self, kernels, name, operations, elements):
        kernels.append((name, operations, elements * self.element_bytes))

    def add_layer(self, name, inputs, weights, outputs, positions, needs_dx):
        """Adds a convolution or dense layer with `weights` multiply-adds per output position."""
        self.parameters += weights
        operations = 2 * weights * positions * self.batch
        inputs, outputs = inputs * self.batch, outputs * self.batch
        self.add(self.forward, name, operations, inputs + weights + outputs)
        if needs_dx:
            self.add(self.backward, name + " dx", operations, outputs + weights + inputs)
        self.add(self.backward, name + " dw", operations, outputs + inputs + weights)

    def bias(self, count):  # computed in the kernels of the layer
        self.parameters += count

    def convolution(self, name, image, channels, filters, size, stride=1, first=False, bias=False):
        after = -(-image // stride)
        self.add_layer(name, image * image * channels, size * size * channels * filters, after * after * filters,
                     after * after, not first)
        if bias:
            self.bias(filters)
        return after

    def dense(self, name, inputs, outputs, first=False):
        self.add_layer(name, inputs, inputs * outputs, outputs, 1, not first)
        self.bias(outputs)

    def pointwise(self, name, forward, backward, forward_elements, backward_elements):
        """Adds kernels with these operations and elements moved per sample; none if the number of elements is 0."""
        batch = self.batch
        if forward_elements:
            self.add(self.forward, name, forward * batch, forward_elements * batch)
        if backward_elements:
            self.add(self.backward, name + " gradient", backward * batch, backward_elements * batch)

    def max_pool(self, name, image, channels):
        """3x3, stride 2. The gradient finds the maxima again from the input and output."""
        before, after = image * image * channels, (image // 2) ** 2 * channels
        self.pointwise(name, 9 * after, 9 * after, before + after, 2 * before + 2 * after)

    def lrn(self, name, elements):
        """A sliding sum of 9 squares and a power: about 8 operations; the gradient about twice as many."""
        self.pointwise(name, 8 * elements, 16 * elements, 2 * elements, 3 * elements)

    def batch_norm(self, name, elements, channels, has_shortcut=False):
        """Statistics and values; with `has_shortcut`, the addition of the shortcut is fused."""
        self.parameters += 2 * channels
        extra = elements if has_shortcut else 0
        self.pointwise(name, 7 * elements, 11 * elements, 3 * elements + extra, 5 * elements + 2 * extra)

    def finish(self):
        self.pointwise("loss", 10 * CLASSES, 2 * CLASSES, CLASSES, 2 * CLASSES)
        # Always f32: reads gradient, velocity and weight, writes velocity and weight.
        update = ("update", 4 * self.parameters, 5 * 4 * self.parameters)
        return self.forward + self.backward[::-1] + [update]


def mlp(step):
    step.dense("hidden1", 784, 512, first=True)
    step.dense("hidden2", 512, 512)
    step.dense("logits", 512, CLASSES)


def tutorial_cnn(step):
    step.convolution("conv1", 24, 3, 64, 5, first=True, bias=True)
    step.max_pool("pool1", 24, 64)
    step.lrn("norm1", 12 * 12 * 64)
    step.convolution("conv2", 12, 64, 64, 5, bias=True)
    step.lrn("norm2", 12 * 12 * 64)
    step.max_pool("pool2", 12, 64)
    step.dense("local3", 6 * 6 * 64, 384)
    step.dense("local4", 384, 192)
    step.dense("softmax_linear", 192, CLASSES)


def resnet20(step):
    step.convolution("conv1", 32, 3, 16, 3, first=True)
    step.batch_norm("norm1", 32 * 32 * 16, 16)
    image, channels = 32, 16
    for stage, (filters, stride) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
        for block in range(1, 4):
            scope, block_stride = f"stage{stage}/block{block}/", stride if block == 1 else 1
            after = step.convolution(scope + "conv1", image, channels, filters, 3, block_stride)
            step.batch_norm(scope + "norm1", after * after * filters, filters)
            step.convolution(scope + "conv2", after, filters, filters, 3)
            if block_stride != 1 or channels != filters:
                step.convolution(scope + "shortcut", image, channels, filters, 1, block_stride)
                step.batch_norm(scope + "shortcut_norm", after * after * filters, filters)
            step.batch_norm(scope + "norm2", after * after * filters, filters, has_shortcut=True)
            image, channels = after, filters
    step.pointwise("average", 64 * 64, 64 * 64, 64 * 64, 64 * 64)
    step.dense("logits", 64, CLASSES)


WORKLOADS = {"mlp": mlp, "tutorial-cnn": tutorial_cnn, "resnet20": resnet20}


def kernels_of(name, options):
    step = Step(options.batch, 2 if options.precision == "bf16" else 4)
    WORKLOADS[name](step)
    return step, step.finish()


def floor_ms(operations, moved, options):
    """Returns the minimum time: arithmetic and memory traffic overlap, so the longer of the two."""
    return max(operations / options.gflops, moved / options.gbs) * 1e-6


def print_workload(name, options):
    step, kernels = kernels_of(name, options)
    floors = options.gflops is not None
    print(f"{name}, batch {options.batch}, {options.precision}: {step.parameters:,} parameters\n")
    print(f"| {'kernel':32} |     MFLOP |        MB | FLOP/byte |" + (" floor, ms |" if floors else ""))
    print(f"|{'-' * 34}|----------:|----------:|----------:|" + ("----------:|" if floors else ""))
    total = [0, 0, 0.0]
    for kernel, operations, moved in kernels:
        min_ms = floor_ms(operations, moved, options) if floors else 0
        total = [total[0] + operations, total[1] + moved, total[2] + min_ms]
        print_row(kernel, operations, moved, min_ms, floors)
    print_row("total", *total, floors)


def print_row(name, operations, moved, min_ms, floors):
    print(f"| {name:32} | {operations / 1e6:9.2f} | {moved / 1e6:9.3f} | {operations / moved:9.1f} |" +
          (f" {min_ms:9.4f} |" if floors else ""))


def print_totals(options):
    floors = options.gflops is not None
    print(f"batch {options.batch}, {options.precision}\n")
    print("| workload     | parameters | forward, MFLOP/sample   | step, MFLOP/sample   | step, GFLOP | step, MB |" +
          (" floor, ms |" if floors else ""))
    print("|--------------|-----------:|------------------------:|---------------------:|------------:|---------:|" +
          ("----------:|" if floors else ""))
    for name in WORKLOADS:
        step, kernels = kernels_of(name, options)
        forward = sum(kernel[1] for kernel in step.forward) / options.batch
        operations, moved = (sum(kernel[i] for kernel in kernels) for i in (1, 2))
        min_ms = sum(floor_ms(kernel[1], kernel[2], options) for kernel in kernels) if floors else 0
        print(f"| {name:12} | {step.parameters:10,} | {forward / 1e6:23.2f} | {operations / options.batch / 1e6:20.2f} |"
              f" {operations / 1e9:11.2f} | {moved / 1e6:8.1f} |" + (f" {min_ms:9.3f} |" if floors else ""))


def main():
    parser = argparse.ArgumentParser(description="Counts the FLOPs and bytes of a training step.")
    parser.add_argument("workload", nargs="?", choices=WORKLOADS)
    parser.add_argument("--batch", type=int, default=128, metavar="N")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--gflops", type=float, metavar="N", help="arithmetic throughput of the machine, in GFLOP/s")
    parser.add_argument("--gbs", type=float, metavar="N", help="memory bandwidth of the machine, in GB/s")
    options = parser.parse_args()
    if (options.gflops is None) != (options.gbs is None):
        parser.error("--gflops and --gbs: expected both or neither")
    if options.workload:
        print_workload(options.workload, options)
    else:
        print_totals(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
