// Writes ONNX files of the networks mlp, tutorial-cnn and resnet50 (its batch normalisation folded into the
// convolutions), for ONNX Runtime: opset 17, NCHW, any batch size. A small writer of protobuf is all that is needed.
//
// Weights are numbers in (-1, 1) times a scale, computed from the index of the tensor and of the element
// (networks.h has the same function), so that bench_inference can compute with the same ones and compare results.
'use strict';
const fs = require('fs');

// ---- protobuf ----

function varint(x) {
    const bytes = [];
    let rest = BigInt.asUintN(64, BigInt(x));
    for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
    bytes.push(Number(rest));
    return Buffer.from(bytes);
}
const integer = (field, x) => Buffer.concat([varint(field << 3), varint(x)]);
const bytes = (field, b) => Buffer.concat([varint((field << 3) | 2), varint(b.length), b]);
const text = (field, s) => bytes(field, Buffer.from(s));
function float(field, x) {
    const b = Buffer.alloc(4);
    b.writeFloatLE(x);
    return Buffer.concat([varint((field << 3) | 5), b]);
}

// ---- ONNX ----

function attribute(name, value) {
    if (Array.isArray(value))
        return bytes(5, Buffer.concat([text(1, name), ...value.map((x) => integer(8, x)), integer(20, 7)]));
    if (typeof value === 'object') return bytes(5, Buffer.concat([text(1, name), float(2, value.float), integer(20, 1)]));
    return bytes(5, Buffer.concat([text(1, name), integer(3, value), integer(20, 2)]));
}

function node(op, inputs, output, attributes = {}) {
    return bytes(1, Buffer.concat([...inputs.map((x) => text(1, x)), text(2, output), text(3, output), text(4, op),
        ...Object.entries(attributes).map(([name, value]) => attribute(name, value))]));
}

function valueInfo(field, name, dims) {
    const shape = dims.map((d) => bytes(1, typeof d === 'string' ? text(2, d) : integer(1, d)));
    const type = Buffer.concat([integer(1, 1), bytes(2, Buffer.concat(shape))]);
    return bytes(field, Buffer.concat([text(1, name), bytes(2, bytes(1, type))]));
}

// ---- Weights ----

function number(tensor, i) {
    let h = Math.imul(i ^ Math.imul(tensor + 1, 0x9e3779b9), 0x85ebca6b);
    h ^= h >>> 13;
    h = Math.imul(h, 0xc2b2ae35);
    h ^= h >>> 16;
    return (h >>> 8) / 8388608 - 1;
}

function numbers(tensor, count, scale) {
    const data = new Float32Array(count);
    for (let i = 0; i < count; i++) data[i] = Math.fround(number(tensor, i) * scale);
    return data;
}

class Graph {
    constructor(inputDims) {
        this.nodes = [];
        this.initializers = [];
        this.tensors = 0;
        this.inputDims = inputDims;
        this.made = 0;
    }
    // The index of a tensor is its position in the order of calls.
    weight(dims, scale) {
        const name = `w${this.tensors}`, count = dims.reduce((a, b) => a * b, 1);
        const data = numbers(this.tensors++, count, scale);
        this.initializers.push(bytes(5, Buffer.concat([...dims.map((d) => integer(1, d)), integer(2, 1), text(8, name),
            bytes(9, Buffer.from(data.buffer))])));
        return name;
    }
    add(op, inputs, attributes) {
        const output = `v${this.made++}`;
        this.nodes.push(node(op, inputs, output, attributes));
        return output;
    }
    // Weights have the deviation of He's initialisation, so that values stay near 1.
    conv(x, from, to, size, stride) {
        const pad = size >> 1;
        const w = this.weight([to, from, size, size], Math.sqrt(6 / (from * size * size)));
        return this.add('Conv', [x, w, this.weight([to], 0.1)],
            { kernel_shape: [size, size], strides: [stride, stride], pads: [pad, pad, pad, pad], dilations: [1, 1], group: 1 });
    }
    dense(x, from, to) {
        const w = this.weight([from, to], Math.sqrt(6 / from));
        return this.add('Gemm', [x, w, this.weight([to], 0.1)]);
    }
    relu(x) {
        return this.add('Relu', [x]);
    }
    pool(x, pads) {
        return this.add('MaxPool', [x], { kernel_shape: [3, 3], strides: [2, 2], pads });
    }
    lrn(x) {
        return this.add('LRN', [x], { size: 9, alpha: { float: 0.001 }, beta: { float: 0.75 }, bias: { float: 1 } });
    }
    save(path, output, classes) {
        const graph = Buffer.concat([...this.nodes, text(2, 'g'), ...this.initializers,
            valueInfo(11, 'x', ['n', ...this.inputDims]), valueInfo(12, output, ['n', classes])]);
        fs.writeFileSync(path, Buffer.concat([integer(1, 8), text(2, 'tutti bench'), bytes(7, graph),
            bytes(8, Buffer.concat([text(1, ''), integer(2, 17)]))]));
        return { output, inputDims: this.inputDims, classes };
    }
}

// ---- Networks ----

function mlp(path) {
    const g = new Graph([784]);
    let x = g.relu(g.dense('x', 784, 512));
    x = g.relu(g.dense(x, 512, 512));
    return g.save(path, g.dense(x, 512, 10), 10);
}

// TensorFlow's SAME padding of 3x3 windows with stride 2 over even sizes: one row below, one column to the right.
function tutorialCnn(path) {
    const g = new Graph([3, 24, 24]);
    let x = g.relu(g.conv('x', 3, 64, 5, 1));
    x = g.lrn(g.pool(x, [0, 0, 1, 1]));
    x = g.lrn(g.relu(g.conv(x, 64, 64, 5, 1)));
    x = g.add('Flatten', [g.pool(x, [0, 0, 1, 1])]);
    x = g.relu(g.dense(x, 2304, 384));
    x = g.relu(g.dense(x, 384, 192));
    return g.save(path, g.dense(x, 192, 10), 10);
}

function resnet50(path) {
    const g = new Graph([3, 224, 224]);
    let x = g.pool(g.relu(g.conv('x', 3, 64, 7, 2)), [1, 1, 1, 1]), channels = 64;
    [3, 4, 6, 3].forEach((blocks, stage) => {
        const width = 64 << stage;
        for (let i = 0; i < blocks; i++) {
            const stride = i === 0 && stage > 0 ? 2 : 1;
            let y = g.relu(g.conv(x, channels, width, 1, 1));
            y = g.relu(g.conv(y, width, width, 3, stride));
            y = g.conv(y, width, 4 * width, 1, 1);
            const shortcut = i === 0 ? g.conv(x, channels, 4 * width, 1, stride) : x;
            x = g.relu(g.add('Add', [y, shortcut]));
            channels = 4 * width;
        }
    });
    x = g.add('Flatten', [g.add('GlobalAveragePool', [x])]);
    return g.save(path, g.dense(x, 2048, 1000), 1000);
}

exports.networks = { mlp, 'tutorial-cnn': tutorialCnn, resnet50 };
exports.numbers = numbers;
exports.INPUT_TENSOR = 1000;
