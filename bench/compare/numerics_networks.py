"""The networks of bench/numerics/networks.c in PyTorch.

Each function takes the tensors saved by bench_numerics, by name, and returns the loss. Images are [n,h,w,c] and
filters [o,h,w,c]; permuted to [n,c,h,w] without a copy they have PyTorch's channels_last layout.
"""

import math

import torch
import torch.nn.functional as F


def channels_first(x):
    return x.permute(0, 3, 1, 2)


def flatten_nhwc(x):
    """[n,c,h,w] -> [n, h*w*c], in Tutti's order."""
    return x.permute(0, 2, 3, 1).flatten(1)


def dense(p, layer, x):
    return F.linear(x, p[layer + ".weights"], p[layer + ".bias"])


def project(p, layer, x):
    return F.linear(x, p[layer + ".weights"])


def convolve(p, layer, x, stride=(1, 1), pad=(0, 0, 0, 0), dilation=1, groups=1):
    """pad: top, bottom, left, right."""
    top, bottom, left, right = pad
    if top != bottom or left != right:
        x = F.pad(x, (left, right, top, bottom))
        top = left = 0
    return F.conv2d(x, channels_first(p[layer + ".weights"]), p.get(layer + ".bias"), stride=stride,
                    padding=(top, left), dilation=dilation, groups=groups)


def convolve_3x3(p, layer, x, stride=1, groups=1):
    return convolve(p, layer, x, (stride, stride), (1, 1, 1, 1), groups=groups)


def batch_norm(p, layer, x):
    return F.batch_norm(x, None, None, p[layer + ".gamma"], p[layer + ".beta"], training=True, eps=1e-5)


def layer_norm(p, layer, x):
    return F.layer_norm(x, x.shape[-1:], p[layer + ".gamma"], p[layer + ".beta"], eps=1e-5)


def local_response_norm(x):
    """PyTorch divides alpha by the window size, Tutti does not."""
    return F.local_response_norm(x, 5, alpha=0.1 * 5, beta=0.75, k=1.0)


def cross_entropy_loss(p, logits):
    return F.cross_entropy(logits, p["labels"].long())


def squared_error(p, y):
    return F.mse_loss(y, p["target"])


# ---- Networks ---------------------------------------------------------------------------------------------------


def softmax_regression(p):
    return cross_entropy_loss(p, dense(p, "out", p["x"]))


def mlp(p):
    h = F.relu(dense(p, "hidden1", p["x"]))
    return cross_entropy_loss(p, dense(p, "out", F.relu(dense(p, "hidden2", h))))


def tanh_mlp(p):
    h = p["x"]
    for i in range(1, 7):
        h = torch.tanh(dense(p, f"hidden{i}", h))
    return squared_error(p, dense(p, "out", h))


def layer_norm_mlp(p):
    h = p["x"]
    for i in range(1, 4):
        h = F.gelu(layer_norm(p, f"norm{i}", dense(p, f"hidden{i}", h)))
    return cross_entropy_loss(p, dense(p, "out", h))


def batch_norm_mlp(p):
    h = p["x"]
    for i in range(1, 4):
        h = F.relu(batch_norm(p, f"norm{i}", project(p, f"hidden{i}", h)))
    return cross_entropy_loss(p, dense(p, "out", h))


def tutorial_cnn(p):
    h = F.relu(convolve(p, "conv1", channels_first(p["x"]), pad=(2, 2, 2, 2)))
    h = local_response_norm(F.max_pool2d(h, 3, 2))
    h = local_response_norm(F.relu(convolve(p, "conv2", h, pad=(2, 2, 2, 2))))
    h = F.relu(dense(p, "local", flatten_nhwc(F.max_pool2d(h, 3, 2))))
    return cross_entropy_loss(p, dense(p, "out", h))


def vgg(p):
    h = channels_first(p["x"])
    for layers in (("conv1", "conv2"), ("conv3", "conv4")):
        for layer in layers:
            h = F.relu(convolve_3x3(p, layer, h))
        h = F.max_pool2d(h, 2)
    return cross_entropy_loss(p, dense(p, "out", flatten_nhwc(h)))


def residual_block(p, index, x, stride):
    h = F.relu(batch_norm(p, f"norm{index}a", convolve_3x3(p, f"conv{index}a", x, stride)))
    h = batch_norm(p, f"norm{index}b", convolve_3x3(p, f"conv{index}b", h))
    if stride > 1:
        x = batch_norm(p, f"norm{index}s", convolve(p, f"short{index}", x, (stride, stride)))
    return F.relu(h + x)


def resnet(p):
    h = F.relu(batch_norm(p, "norm", convolve_3x3(p, "stem", channels_first(p["x"]))))
    for index in (1, 2, 3):
        h = residual_block(p, index, h, 1 if index == 1 else 2)
    return cross_entropy_loss(p, dense(p, "out", h.mean((2, 3))))


def mobilenet(p):
    h = F.relu(batch_norm(p, "norm", convolve_3x3(p, "stem", channels_first(p["x"]), 2)))
    for i in (1, 2, 3):
        h = convolve_3x3(p, f"depth{i}", h, 2 if i == 2 else 1, groups=h.shape[1])
        h = F.relu(batch_norm(p, f"norm{i}a", h))
        h = F.relu(batch_norm(p, f"norm{i}b", convolve(p, f"point{i}", h)))
    return cross_entropy_loss(p, dense(p, "out", h.mean((2, 3))))


def grouped(p):
    h = channels_first(p["x"])
    for i in (1, 2, 3):
        h = F.silu(convolve_3x3(p, f"conv{i}", h, 2 if i == 3 else 1, groups=3 if i == 2 else 4))
    return cross_entropy_loss(p, dense(p, "out", h.mean((2, 3))))


def dilated(p):
    h = channels_first(p["x"])
    for i in (1, 2, 3):
        h = F.leaky_relu(convolve(p, f"conv{i}", h, pad=(i, i, i, i), dilation=i), 0.1)
    return F.mse_loss(convolve(p, "out", h), channels_first(p["target"]))


def odd_strides(p):
    h = F.relu(convolve(p, "conv1", channels_first(p["x"]), (3, 3), (0, 2, 1, 1)))
    h = F.relu(convolve(p, "conv2", h, (2, 3)))
    h = F.relu(convolve(p, "conv3", h, (2, 1), (3, 1, 0, 1)))
    return cross_entropy_loss(p, dense(p, "out", flatten_nhwc(h)))


def average_pooled(p):
    h = F.elu(convolve(p, "conv1", channels_first(p["x"])))
    h = F.avg_pool2d(h, 3, 2, padding=1, count_include_pad=False)
    h = F.elu(convolve(p, "conv2", h))
    return cross_entropy_loss(p, dense(p, "out", F.adaptive_max_pool2d(h, 1).flatten(1)))


def upsample(p, layer, x):
    return F.conv_transpose2d(x, channels_first(p[layer + ".weights"]), p[layer + ".bias"], stride=2, padding=1)


def autoencoder(p):
    h = F.relu(convolve_3x3(p, "conv1", channels_first(p["x"]), 2))
    h = F.relu(convolve_3x3(p, "conv2", h, 2))
    h = torch.sigmoid(upsample(p, "wide2", F.relu(upsample(p, "wide1", h))))
    return F.mse_loss(h, channels_first(p["target"]))


def attention(p, x, heads):
    n, t, width = x.shape

    def split(y):
        return y.reshape(n, t, heads, width // heads).transpose(1, 2)

    q, k, v = split(dense(p, "query", x)), split(project(p, "key", x)), split(dense(p, "value", x))
    scores = (q @ k.transpose(2, 3)) * (1 / math.sqrt(width // heads))
    mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, width)
    return dense(p, "mix", mixed)


def transformer(p):
    x = p["x"]
    x = x + attention(p, layer_norm(p, "norm1", x), 4)
    x = x + dense(p, "narrow", F.gelu(dense(p, "wide", layer_norm(p, "norm2", x))))
    return cross_entropy_loss(p, dense(p, "out", layer_norm(p, "norm3", x).mean(1)))


def embedding(p):
    h = F.embedding(p["words"].long(), p["table"]).mean(1)
    return cross_entropy_loss(p, dense(p, "out", F.relu(dense(p, "hidden", h))))


def recurrent(p):
    h, units = p["start"], p["start"].shape[1]
    for now in p["x"]:
        from_x = F.linear(now, p["in"], p["bias"])
        both = torch.sigmoid(from_x[:, :2 * units] + F.linear(h, p["gates"]))
        keep, reset = both[:, :units], both[:, units:]
        fresh = torch.tanh(from_x[:, 2 * units:] + F.linear(reset * h, p["again"]))
        h = keep * h + (1 - keep) * fresh
    return cross_entropy_loss(p, dense(p, "out", h))


def identity(size, like):
    return torch.eye(size, dtype=like.dtype, device=like.device)


def gaussian_process(p):
    f = torch.tanh(dense(p, "features", p["x"]))
    k = (f @ f.T) * (1 / 16)
    factor = torch.linalg.cholesky(k + 0.5 * identity(len(f), p["x"]))
    white = torch.linalg.solve_triangular(factor, p["target"], upper=False)
    return (0.5 * white.square().sum() + factor.diagonal().log().sum()) / len(f)


def ridge(p):
    """Solves systems in the dtype of the data: autocast has no half-precision solvers."""
    train, test = torch.tanh(dense(p, "features", p["x"]))
    gram = (train.T @ train) * (1 / len(train))
    right = (train.T @ p["y"]) * (1 / len(train))
    gram = gram + 0.1 * identity(len(gram), p["x"])
    return squared_error(p, test @ torch.linalg.solve(gram, right.to(gram.dtype)))


NETWORKS = {
    "softmax-regression": softmax_regression,
    "mlp": mlp,
    "tanh-mlp": tanh_mlp,
    "wide-mlp": mlp,
    "layer-norm-mlp": layer_norm_mlp,
    "batch-norm-mlp": batch_norm_mlp,
    "tutorial-cnn": tutorial_cnn,
    "vgg": vgg,
    "resnet": resnet,
    "mobilenet": mobilenet,
    "grouped": grouped,
    "dilated": dilated,
    "odd-strides": odd_strides,
    "average-pooled": average_pooled,
    "autoencoder": autoencoder,
    "transformer": transformer,
    "embedding": embedding,
    "recurrent": recurrent,
    "gaussian-process": gaussian_process,
    "ridge": ridge,
}
