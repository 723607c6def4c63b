#!/usr/bin/env python3
"""Writes expected values computed by PyTorch, with which tests/unit/test_known_values.c compares Tutti.

    python3 generate_known_values.py > known_values.txt

Needs only PyTorch (known_values.txt was written with 2.11 on a CPU). All floats are float64. The file is a list of
cases:

    case KIND VARIANT              KIND selects the graph, VARIANT appears in messages
    attr NAME VALUE...             an attribute: numbers or words
    input NAME TYPE SHAPE          f64 or i64; SHAPE is 2x3x4, or "scalar"; then its elements, in lines of any length
    output NAME TYPE SHAPE         an expected output; the first is y
    weights y TYPE SHAPE           r in the loss sum(y * r)
    gradient NAME TYPE SHAPE       the gradient of the loss with respect to input NAME

Images are [n,h,w,c] and filters [o,h,w,c] as in Tutti; each case's function converts to PyTorch's layout and back,
so that gradients have Tutti's layout too. Inputs have three decimals to keep the file small; results have as many
digits as are needed to restore the same double.
"""
import math
import sys

import torch
import torch.nn.functional as F

MAX_BYTES = 200_000  # of the file
written = 0


def line(text):
    global written
    print(text)
    written += len(text) + 1


def numbers(*shape, low=None, high=None):
    """Random numbers with three decimals: normal, or uniform in [low, high)."""
    if low is None:
        x = torch.randn(shape, dtype=torch.float64)
    else:
        x = low + (high - low) * torch.rand(shape, dtype=torch.float64)
    return torch.round(x * 1000) / 1000


def write_tensor(role, name, tensor):
    tensor = tensor.detach()
    kind = {torch.float64: "f64", torch.int64: "i64"}[tensor.dtype]
    line(f"{role} {name} {kind} {'x'.join(map(str, tensor.shape)) or 'scalar'}")
    row = ""
    for value in tensor.reshape(-1).tolist():
        text = repr(value + 0 if value == 0 else value)  # no negative zeros
        if text.endswith(".0"):
            text = text[:-2]
        if len(row) + 1 + len(text) > 110:
            line(row)
            row = ""
        row += (" " if row else "") + text
    line(row)


def case(kind, variant, compute, inputs, fixed=(), **attrs):
    """Calls compute with the inputs, in their order, and writes the case. compute returns y or a dictionary of outputs
    with y first. Gradients are written for all float inputs except the fixed ones."""
    leaves = {name: tensor.clone() for name, tensor in inputs.items()}
    differentiable = [name for name, tensor in leaves.items() if tensor.is_floating_point() and name not in fixed]
    for name in differentiable:
        leaves[name].requires_grad_(True)
    outputs = compute(*leaves.values())
    if not isinstance(outputs, dict):
        outputs = {"y": outputs}
    weights = numbers(*outputs["y"].shape)
    gradients = torch.autograd.grad((outputs["y"] * weights).sum(), [leaves[name] for name in differentiable])
    line(f"case {kind} {variant}")
    for name, value in attrs.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        line(f"attr {name} {' '.join(str(int(v)) if isinstance(v, bool) else str(v) for v in values)}")
    for name, tensor in inputs.items():
        write_tensor("input", name, tensor)
    for name, tensor in outputs.items():
        write_tensor("output", name, tensor)
    write_tensor("weights", "y", weights)
    for name, tensor in zip(differentiable, gradients):
        write_tensor("gradient", name, tensor)


# ---- Layout conversion ----


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


# ---- Windows ----


def window_padding(padding, pad, size, window, stride, dilation=(1, 1)):
    """Returns top, bottom, left and right padding. "same" is as defined by TensorFlow."""
    if padding == "valid":
        return [0, 0, 0, 0]
    if padding == "explicit":
        return list(pad)
    result = []
    for axis in range(2):
        extent = (window[axis] - 1) * dilation[axis] + 1
        outputs = math.ceil(size[axis] / stride[axis])
        total = max((outputs - 1) * stride[axis] + extent - size[axis], 0)
        result += [total // 2, total - total // 2]
    return result


def padded(x, pads, value=0.0):
    """Pads an NCHW image."""
    top, bottom, left, right = pads
    return F.pad(x, (left, right, top, bottom), value=value)


def conv2d_case(variant, size, channels, filters, kernel, stride=(1, 1), dilation=(1, 1), groups=1, padding="same",
                pad=(0, 0, 0, 0), n=1):
    pads = window_padding(padding, pad, size, kernel, stride, dilation)

    def compute(x, filter):
        return nhwc(F.conv2d(padded(nchw(x), pads), nchw(filter), stride=stride, dilation=dilation, groups=groups))

    inputs = {"x": numbers(n, *size, channels), "filter": numbers(filters, *kernel, channels // groups)}
    case("conv2d", variant, compute, inputs, stride=stride, dilation=dilation, groups=groups, padding=padding, pad=pad)


def convolution_cases():
    conv2d_case("pointwise", (2, 3), 3, 4, (1, 1), n=2)
    conv2d_case("same", (4, 5), 2, 3, (3, 3), n=2)
    conv2d_case("same-strided", (5, 6), 2, 2, (4, 3), stride=(2, 3))
    conv2d_case("same-sparse", (7, 5), 1, 2, (2, 1), stride=(3, 2))
    conv2d_case("valid-dilated", (7, 4), 2, 2, (3, 2), dilation=(2, 1), padding="valid")
    conv2d_case("same-dilated-strided", (6, 7), 1, 2, (3, 2), stride=(2, 1), dilation=(1, 3))
    conv2d_case("explicit-groups", (4, 5), 4, 6, (3, 2), stride=(2, 2), groups=2, padding="explicit", pad=(1, 0, 2, 1))
    conv2d_case("depthwise", (4, 4), 3, 6, (3, 3), groups=3, padding="valid")
    conv2d_case("padding-beyond-the-filter", (3, 2), 1, 1, (2, 2), padding="explicit", pad=(3, 2, 0, 3))


def convolve_transpose_case(variant, size, channels, filters, kernel, stride=(1, 1), dilation=(1, 1), groups=1,
                            padding="valid", pad=(0, 0, 0, 0), result=(0, 0), n=1):
    """`size` is the height and width of x, `result` those of y; 0 means the default."""
    extent = [(kernel[i] - 1) * dilation[i] + 1 for i in range(2)]
    full = [(size[i] - 1) * stride[i] + extent[i] for i in range(2)]
    if padding == "same":
        shape = [result[i] or size[i] * stride[i] for i in range(2)]
    else:
        shape = [result[i] or full[i] - (pad[2 * i] + pad[2 * i + 1]) for i in range(2)]
    top, _, left, _ = window_padding(padding, pad, shape, kernel, stride, dilation)

    def compute(x, filter):
        spread = F.conv_transpose2d(nchw(x), nchw(filter), stride=stride, dilation=dilation, groups=groups)
        spread = padded(spread, (0, shape[0], 0, shape[1]))  # at least as large as the slice below
        return nhwc(spread[:, :, top:top + shape[0], left:left + shape[1]])

    inputs = {"x": numbers(n, *size, filters), "filter": numbers(filters, *kernel, channels // groups)}
    case("convolve_transpose", variant, compute, inputs, stride=stride, dilation=dilation, groups=groups,
         padding=padding, pad=pad, size=result)


def convolve_transpose_cases():
    convolve_transpose_case("valid", (2, 3), 2, 3, (3, 2), n=2)
    convolve_transpose_case("valid-strided", (2, 3), 2, 2, (2, 3), stride=(3, 2))
    convolve_transpose_case("valid-sized", (2, 3), 1, 2, (2, 3), stride=(3, 2), result=(7, 8))
    convolve_transpose_case("explicit", (3, 2), 2, 2, (3, 3), stride=(2, 2), padding="explicit", pad=(1, 1, 0, 2))
    convolve_transpose_case("same", (2, 3), 2, 2, (4, 3), stride=(2, 2), padding="same")
    convolve_transpose_case("same-wide-stride", (2, 2), 1, 2, (2, 2), stride=(3, 3), padding="same")
    convolve_transpose_case("dilated-groups", (3, 2), 4, 2, (2, 2), dilation=(2, 1), groups=2)
    # Check the definition above against PyTorch's padding and output_padding.
    x, w = numbers(1, 3, 2, 2), numbers(3, 2, 3, 3)
    expected = F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)
    ours = padded(F.conv_transpose2d(x, w, stride=2), (0, 4, 0, 4))[:, :, 1:5, 1:5]
    assert torch.allclose(expected, ours, rtol=1e-14)


def pool_case(kind, variant, size, window, stride, padding="same", pad=(0, 0, 0, 0), count_padding=None, n=1,
              channels=2):
    pads = window_padding(padding, pad, size, window, stride)

    def max_pool(x):
        return nhwc(F.max_pool2d(padded(nchw(x), pads, -math.inf), window, stride))

    def avg_pool(x):
        mean = F.avg_pool2d(padded(nchw(x), pads), window, stride)
        inside_fraction = F.avg_pool2d(padded(torch.ones_like(nchw(x)), pads), window, stride)
        return nhwc(mean if count_padding else mean / inside_fraction)

    attrs = {} if count_padding is None else {"count_padding": count_padding}
    case(kind, variant, max_pool if kind == "max_pool" else avg_pool, {"x": numbers(n, *size, channels)},
         window=window, stride=stride, padding=padding, pad=pad, **attrs)


def pool_cases():
    for kind, options in (("max_pool", [None]), ("avg_pool", [False, True])):
        for count in options:
            name = "-counted" if count else ""
            pool_case(kind, "same" + name, (4, 5), (2, 3), (2, 2), count_padding=count)
            pool_case(kind, "overlapping" + name, (5, 4), (3, 3), (2, 1), "explicit", (1, 1, 2, 0), count)
            pool_case(kind, "valid" + name, (5, 5), (2, 2), (2, 2), "valid", count_padding=count, n=2, channels=1)
    # Check the definition above against PyTorch's count_include_pad.
    x = numbers(1, 2, 5, 5)
    inside_fraction = F.avg_pool2d(padded(torch.ones_like(x), (1, 1, 1, 1)), 3, 2)
    ours = F.avg_pool2d(padded(x, (1, 1, 1, 1)), 3, 2)
    assert torch.allclose(F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=True), ours, rtol=1e-14)
    assert torch.allclose(F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False), ours / inside_fraction, rtol=1e-14)


def resize_case(variant, size, result, method, n=1, channels=1):
    def compute(x):
        if method == "nearest":
            return nhwc(F.interpolate(nchw(x), size=result, mode="nearest"))
        return nhwc(F.interpolate(nchw(x), size=result, mode="bilinear", align_corners=False, antialias=False))

    case("resize", variant + "-" + method, compute, {"x": numbers(n, *size, channels)}, size=result, method=method)


def resize_cases():
    for method in ("bilinear", "nearest"):
        resize_case("up", (3, 2), (7, 5), method, n=2, channels=2)
        resize_case("down", (7, 8), (3, 5), method)
        resize_case("mixed", (2, 6), (5, 1), method, channels=2)


# ---- Normalisation ----


def normalisation_cases():
    for variant, shape, epsilon in (("images", (2, 3, 2, 3), 1e-5), ("rows", (5, 4), 1e-3)):
        c = shape[-1]

        def batch_norm(x, gamma, beta):
            rows = x.reshape(-1, x.shape[-1])
            y = F.batch_norm(rows, None, None, gamma, beta, training=True, eps=epsilon).reshape(x.shape)
            return {"y": y, "mean": rows.mean(0), "variance": rows.var(0, unbiased=False)}

        case("batch_norm", variant, batch_norm, {"x": numbers(*shape), "gamma": numbers(c), "beta": numbers(c)},
             epsilon=epsilon)

    for variant, shape, axes, epsilon in (("rows", (3, 5), 1, 1e-5), ("matrices", (2, 2, 3, 4), 2, 1e-3)):
        tail = shape[len(shape) - axes:]

        def layer_norm(x, gamma, beta):
            over = tuple(range(-axes, 0))
            y = F.layer_norm(x, tail, gamma, beta, epsilon)
            deviation = torch.sqrt(x.var(over, unbiased=False) + epsilon)
            return {"y": y, "mean": x.mean(over), "reciprocal_deviation": 1 / deviation}

        case("layer_norm", variant, layer_norm,
             {"x": numbers(*shape), "gamma": numbers(*tail), "beta": numbers(*tail)}, epsilon=epsilon, axes=axes)

    for variant, channels, radius, bias, alpha, beta in (
            ("narrow", 5, 1, 1.0, 1.0, 0.5), ("alexnet", 9, 2, 2.0, 1e-4, 0.75),
            ("wider-than-the-channels", 3, 4, 1.5, 0.3, 0.75)):
        size = 2 * radius + 1

        def lrn(x):
            # PyTorch divides alpha by the number of channels in the window; Tutti, like TensorFlow, does not.
            return nhwc(F.local_response_norm(nchw(x), size, alpha=alpha * size, beta=beta, k=bias))

        case("lrn", variant, lrn, {"x": numbers(1, 2, 2, channels)}, radius=radius, bias=bias, alpha=alpha, beta=beta)


# ---- Softmax and losses ----


def loss_cases():
    for axis in (-1, 1):
        x = numbers(2, 3, 4)
        case("softmax", f"axis{axis}", lambda x: torch.softmax(x, axis), {"x": x}, axis=axis)
        case("log_softmax", f"axis{axis}", lambda x: torch.log_softmax(x, axis), {"x": x}, axis=axis)
    case("softmax", "large", lambda x: torch.softmax(x, -1), {"x": 300 * numbers(2, 4)}, axis=-1)

    for variant, axes, keep in (("one", (1,), False), ("two", (0, 2), True), ("all", (0, 1, 2), False)):
        case("logsumexp", variant, lambda x: torch.logsumexp(x, axes, keep), {"x": numbers(2, 3, 4)}, axes=axes,
             keep=keep)

    for smoothing in (0.0, 0.1):
        name = "-smoothed" if smoothing else ""

        def sparse(logits, labels):  # classes are the last axis in Tutti, the second in PyTorch
            classes_second = logits.movedim(-1, 1) if logits.dim() > 1 else logits
            return F.cross_entropy(classes_second, labels, reduction="none", ignore_index=-1, label_smoothing=smoothing)

        def dense(logits, labels):
            return F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)

        case("cross_entropy", "sparse" + name, sparse, {"logits": numbers(4, 5), "labels": torch.tensor([2, 0, 4, 2])},
             smoothing=smoothing)
        case("cross_entropy", "masked" + name, sparse,
             {"logits": numbers(2, 3, 4), "labels": torch.tensor([[1, -1, 3], [-1, 0, 0]])}, smoothing=smoothing)
        case("cross_entropy", "dense" + name, dense,
             {"logits": numbers(4, 3), "labels": torch.softmax(numbers(4, 3), -1)}, fixed=("labels",),
             smoothing=smoothing)


# ---- Matrices ----


def matrix_cases():
    eye = torch.eye(4, dtype=torch.float64)
    for variant, batch in (("one", ()), ("batch", (2,))):
        a = numbers(*batch, 4, 4) + 3 * eye
        case("inverse", variant, torch.linalg.inv, {"a": a})
        case("solve", variant, torch.linalg.solve, {"a": a, "b": numbers(*batch, 4, 3)})

        # The gradient is with respect to m, because PyTorch and Tutti distribute the gradient of a symmetric matrix
        # differently over its triangles.
        def cholesky(m, shift):
            return torch.linalg.cholesky(m @ m.mT + shift)

        case("cholesky", variant, cholesky, {"m": numbers(*batch, 4, 4), "shift": 4 * eye}, fixed=("shift",))
    for upper in (False, True):
        a, b = numbers(2, 3, 3) + 3 * eye[:3, :3], numbers(2, 3, 2)
        a = torch.triu(a) if upper else torch.tril(a)
        case("triangular_solve", "upper" if upper else "lower",
             lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper), {"a": a, "b": b}, upper=upper)


# ---- Other operations and networks ----


def activation_cases():
    functions = {
        "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "elu": lambda x: F.elu(x, 1.5),
    }
    for name, function in functions.items():
        case("activation", name, function, {"x": numbers(13, low=-4, high=4)}, function=name)


def order_cases():
    for exclusive in (False, True):
        for reverse in (False, True):
            def cumsum(x):
                y = torch.flip(x, [1]) if reverse else x
                y = torch.cumsum(y, 1) - y if exclusive else torch.cumsum(y, 1)
                return torch.flip(y, [1]) if reverse else y

            variant = ("exclusive" if exclusive else "inclusive") + ("-reverse" if reverse else "")
            case("cumsum", variant, cumsum, {"x": numbers(2, 4, 2)}, axis=1, exclusive=exclusive, reverse=reverse)

    for axis, k in ((1, 3), (0, 2), (-1, 1)):
        def top_k(x):
            values, indices = torch.topk(x, k, axis)
            return {"y": values, "indices": indices}

        x = (torch.randperm(3 * 5 * 2).reshape(3, 5, 2) - 15) / 8.0  # all different, because PyTorch breaks ties differently
        case("top_k", f"axis{axis}", top_k, {"x": x.to(torch.float64)}, axis=axis, k=k)


def network_cases():
    def dense(x, labels, w1, b1, w2, b2):
        hidden = F.relu(F.linear(x, w1, b1))
        return F.cross_entropy(F.linear(hidden, w2, b2), labels)

    case("network_dense", "two-layers", dense,
         {"x": numbers(5, 6), "labels": torch.tensor([0, 2, 1, 2, 0]), "w1": numbers(7, 6), "b1": numbers(7),
          "w2": numbers(3, 7), "b2": numbers(3)})

    def convolutional(x, labels, f1, b1, f2, gamma, beta, w, b):
        h = F.relu(F.conv2d(nchw(x), nchw(f1), b1, padding=1))
        h = F.max_pool2d(h, 2)
        h = F.conv2d(h, nchw(f2), stride=2, padding=1)
        h = F.gelu(F.batch_norm(h, None, None, gamma, beta, training=True, eps=1e-5))
        return F.cross_entropy(F.linear(h.mean((2, 3)), w, b), labels)

    case("network_conv", "conv-pool-conv-norm", convolutional,
         {"x": numbers(3, 6, 6, 2), "labels": torch.tensor([1, 0, 3]), "f1": numbers(4, 3, 3, 2), "b1": numbers(4),
          "f2": numbers(5, 3, 3, 4), "gamma": numbers(5), "beta": numbers(5), "w": numbers(4, 5), "b": numbers(4)})


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(20260101)
    line(f"# Written by generate_known_values.py with PyTorch {torch.__version__.split('+')[0]}")
    for cases in (convolution_cases, convolve_transpose_cases, pool_cases, resize_cases, normalisation_cases,
                  loss_cases, matrix_cases, activation_cases, order_cases, network_cases):
        cases()
    print(f"{written} bytes", file=sys.stderr)
    if written > MAX_BYTES:
        sys.exit(f"more than {MAX_BYTES} bytes: make some cases smaller")


if __name__ == "__main__":
    main()
