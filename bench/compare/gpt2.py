#!/usr/bin/env python3
"""Trains GPT-2 in PyTorch from the weights and tokens that bench_gpt2 has saved, and compares losses and times.

    bench/compare/gpt2.py FOLDER [--batch 32] [--context 1024] [--device cuda] [--mode compile] [--reference]

FOLDER has weights.safetensors, tokens.bin and tutti.json (bench/text/bench_gpt2.c), which also has the learning rate and its
warm-up. PyTorch uses bf16 autocast, flash attention, the fused AdamW and, unless --mode is eager, torch.compile. Prints the difference of every loss. With --reference
PyTorch also trains in f32, which shows the errors of both. Exit status 1: a loss differs by more than --most.
"""

import argparse
import json
import struct
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

BETAS, DECAY = (0.9, 0.95), 0.1


def read_weights(path, device):
    """Reads a safetensors file: 8 bytes with the length of a JSON header, the header, the tensors."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        tensor = torch.frombuffer(bytearray(data[first:last]), dtype=torch.float32)
        weights[name] = torch.nn.Parameter(tensor.reshape(entry["shape"]).to(device))
    return weights


class Gpt(torch.nn.Module):
    """GPT-2 with Tutti's names of variables."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.ParameterDict({name.replace("/", "_"): tensor for name, tensor in weights.items()})
        self.layers = sum(name.endswith("attn/c_attn/weights") for name in weights)
        self.width = weights["wte"].shape[1]
        self.heads = max(1, self.width // (64 if self.width % 64 == 0 and self.layers == 12 else 32))

    def dense(self, x, name):
        return F.linear(x, self.weights[f"{name}_weights"], self.weights[f"{name}_bias"])

    def norm(self, x, name):
        return F.layer_norm(x, (self.width,), self.weights[f"{name}_gamma"], self.weights[f"{name}_beta"], 1e-5)

    def attend(self, x, name):
        batch, context, width = x.shape
        q, k, v = (part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.dense(x, f"{name}_c_attn").split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(y.transpose(1, 2).reshape(batch, context, width), f"{name}_c_proj")

    def forward(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = F.embedding(inputs, self.weights["wte"]) + self.weights["wpe"][:inputs.shape[1]]
        for i in range(self.layers):
            x = x + self.attend(self.norm(x, f"h{i}_ln_1"), f"h{i}_attn")
            hidden = F.gelu(self.dense(self.norm(x, f"h{i}_ln_2"), f"h{i}_mlp_c_fc"), approximate="tanh")
            x = x + self.dense(hidden, f"h{i}_mlp_c_proj")
        logits = F.linear(self.norm(x, "ln_f"), self.weights["wte"])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


class Trainer:
    def __init__(self, weights, device, mode, recipe, half=True):
        self.network = Gpt(weights)
        matrices = [p for p in self.network.parameters() if p.dim() >= 2]
        others = [p for p in self.network.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        fused = {"fused": True} if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(groups, lr=recipe["rate"], betas=BETAS, eps=1e-8, **fused)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / max(1, recipe["warmup"])))
        self.loss = torch.compile(self.network) if mode == "compile" else self.network
        self.device = device
        self.half = half

    def step(self, tokens):
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.half):
            loss = self.loss(tokens)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def losses(self, batches):
        losses = [self.step(batch) for batch in batches]
        return [loss.item() for loss in losses]


def train_reference(weights, device, recipe, batches):
    """Returns the losses in f32, without tf32."""
    torch.set_float32_matmul_precision("highest")
    losses = Trainer(weights, device, "eager", recipe, half=False).losses(batches)
    torch.set_float32_matmul_precision("high")
    return losses


def print_differences(title, losses, others):
    """Prints losses[i] - others[i] in units of 0.0001, ten steps per line. Returns the largest."""
    differences = [a - b for a, b in zip(losses, others)]
    sizes = [abs(d) for d in differences]
    print(f"{title}, losses differ by (1e-4):")
    for first in range(0, len(differences), 10):
        row = differences[first:first + 10]
        print(f"  steps {first + 1:3} to {first + len(row):3}: " + " ".join(f"{1e4 * d:+7.1f}" for d in row))
    worst = max(sizes)
    print(f"  largest {worst:.4f} (step {sizes.index(worst) + 1}), mean {sum(sizes) / len(sizes):.4f}, "
          f"mean with sign {sum(differences) / len(differences):+.4f}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", choices=("compile", "eager"), default="compile")
    parser.add_argument("--timed", type=int, default=50, help="timed steps")
    parser.add_argument("--most", type=float, default=0.01, help="largest difference of a loss")
    parser.add_argument("--reference", action="store_true", help="also train in f32 and compare both with it")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    tutti = json.loads((args.folder / "tutti.json").read_text())
    tokens = torch.frombuffer(bytearray((args.folder / "tokens.bin").read_bytes()), dtype=torch.int32)
    tokens = tokens.reshape(-1, args.batch, args.context + 1).long().to(args.device)
    trainer = Trainer(read_weights(args.folder / "weights.safetensors", args.device), args.device, args.mode,
                      tutti)
    losses = trainer.losses(tokens)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    wait()
    start = time.monotonic()
    for _ in range(args.timed):
        trainer.step(tokens[0])
    wait()
    ms = (time.monotonic() - start) * 1e3 / max(1, args.timed)
    for i in [*range(0, len(losses), 10), len(losses) - 1]:
        print(f"step {i + 1:3}: tutti {tutti['losses'][i]:.4f}  torch {losses[i]:.4f}")
    worst = print_differences("tutti - torch", tutti["losses"], losses)
    if args.reference:
        del trainer
        exact = train_reference(read_weights(args.folder / "weights.safetensors", args.device), args.device,
                                tutti, tokens)
        print_differences("tutti - f32", tutti["losses"], exact)
        print_differences("torch - f32", losses, exact)
    print(f"largest difference of {len(losses)} losses: {worst:.4f} (at most {args.most})")
    print(f"step: tutti {tutti['ms_per_step']:.1f} ms, torch {torch.__version__} {args.mode} {ms:.1f} ms")
    return worst > args.most


if __name__ == "__main__":
    sys.exit(main())
