// Compares inference of Tutti with ONNX Runtime on the CPU, in f32: times and results.
//
//     npm install onnxruntime-node          (in any folder; NODE_PATH=FOLDER/node_modules)
//     node compare.js BENCH_INFERENCE [--network NAME] [--threads 1,2] [--batch 1,32] [--rounds N] [--cpu-time]
//
// --cpu-time: compare the processor's time instead of the elapsed time, for one thread on a machine with other load.
//
// Rounds alternate: a block of runs of one, then of the other, each after a pause in which the other's threads stop
// spinning. Prints the median over all rounds of the time of a run, their ratio, and the largest difference of the
// results relative to the largest result. ONNX Runtime is called synchronously, with result tensors allocated before.
'use strict';
const fs = require('fs'), os = require('os'), path = require('path');
const { spawn } = require('child_process');
const readline = require('readline');
const { Tensor } = require('onnxruntime-node');
const { binding, initOrt } = require(path.join(path.dirname(require.resolve('onnxruntime-node')), 'binding.js'));
const { networks, numbers, INPUT_TENSOR } = require('./onnx.js');

const BATCHES = { mlp: [1, 128], 'tutorial-cnn': [1, 128], resnet50: [1, 32] };
const BLOCK_SECONDS = 0.3, PAUSE_MS = 60;

let cpuTime = false;
function now() {
    if (!cpuTime) return Number(process.hrtime.bigint()) * 1e-9;
    const { user, system } = process.cpuUsage();
    return (user + system) * 1e-6;
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (x) => [...x].sort((a, b) => a - b)[x.length >> 1];

function parse(args) {
    const options = { bench: null, network: Object.keys(networks), threads: [1, 2], batch: null, rounds: 7 };
    for (let i = 0; i < args.length; i++) {
        const list = () => args[++i].split(',');
        if (args[i] === '--network') options.network = list();
        else if (args[i] === '--threads') options.threads = list().map(Number);
        else if (args[i] === '--batch') options.batch = list().map(Number);
        else if (args[i] === '--cpu-time') cpuTime = true;
        else if (args[i] === '--rounds') options.rounds = Number(args[++i]);
        else if (args[i].startsWith('--') || options.bench) throw new Error(`unknown argument ${args[i]}`);
        else options.bench = args[i];
    }
    if (!options.bench) throw new Error('usage: node compare.js BENCH_INFERENCE [options]');
    return options;
}

// ---- ONNX Runtime ----

function openOrt(model, file, threads, batch) {
    initOrt();
    const session = new binding.InferenceSession();
    session.loadModel(file, { intraOpNumThreads: threads, logSeverityLevel: 3, executionProviders: ['cpu'] });
    const dims = [batch, ...model.inputDims], count = dims.reduce((a, b) => a * b, 1);
    const feeds = { x: new Tensor('float32', numbers(INPUT_TENSOR, count, 1), dims) };
    const result = new Float32Array(batch * model.classes);
    const fetches = { [model.output]: new Tensor('float32', result, [batch, model.classes]) };
    const run = () => session.run(feeds, fetches, {});
    return { run, result };
}

// Returns seconds per run of a block of `count` runs.
function timeBlock(run, count) {
    const start = now();
    for (let i = 0; i < count; i++) run();
    return (now() - start) / count;
}

// ---- Tutti: a process that executes commands from its standard input ----

function openTutti(bench, name, threads, batch, result) {
    const child = spawn(bench, [name, String(threads), String(batch), result], {
        stdio: ['pipe', 'pipe', 'inherit'],
        env: { ...process.env, ...(cpuTime ? { TUTTI_BENCH_CPU_TIME: '1' } : {}) },
    });
    const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async (command) => {
        child.stdin.write(`${command}\n`);
        const { value, done } = await lines.next();
        if (done) throw new Error(`${bench} has ended`);
        return Number(value);
    };
    return { time: (count) => ask(count), close: () => child.stdin.end() };
}

function difference(a, b) {
    let worst = 0, largest = 0;
    for (let i = 0; i < a.length; i++) {
        worst = Math.max(worst, Math.abs(a[i] - b[i]));
        largest = Math.max(largest, Math.abs(a[i]));
    }
    return worst / largest;
}

async function compare(options, folder, name, threads, batch) {
    const file = path.join(folder, `${name}.onnx`), resultFile = path.join(folder, 'result.f32');
    const model = networks[name](file);
    const ort = openOrt(model, file, threads, batch), tutti = openTutti(options.bench, name, threads, batch, resultFile);
    const first = Math.max(timeBlock(ort.run, 2), await tutti.time(2));
    const count = Math.max(2, Math.min(5000, Math.round(BLOCK_SECONDS / first)));
    const times = { ort: [], tutti: [] };
    for (let i = 0; i < options.rounds; i++) {
        for (const side of i % 2 ? ['tutti', 'ort'] : ['ort', 'tutti']) {
            await pause(PAUSE_MS);
            times[side].push(side === 'ort' ? timeBlock(ort.run, count) : await tutti.time(count));
        }
    }
    tutti.close();
    const data = fs.readFileSync(resultFile);
    const ours = new Float32Array(data.buffer, data.byteOffset, data.length / 4);
    const ratios = times.tutti.map((t, i) => t / times.ort[i]);
    const ms = (t) => (1e3 * median(t)).toFixed(3).padStart(9);
    console.log(`${name.padEnd(13)} ${String(threads).padStart(7)} ${String(batch).padStart(6)} ${ms(times.ort)} ${ms(times.tutti)}` +
        ` ${median(ratios).toFixed(3).padStart(7)} ${difference(ort.result, ours).toExponential(1).padStart(11)}`);
}

async function main() {
    const options = parse(process.argv.slice(2));
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tutti-inference-'));
    console.log('network       threads  batch    ORT ms  Tutti ms   ratio  difference');
    for (const name of options.network)
        for (const threads of options.threads)
            for (const batch of options.batch || BATCHES[name]) await compare(options, folder, name, threads, batch);
    fs.rmSync(folder, { recursive: true });
}

main().catch((error) => {
    console.error(`compare.js: ${error.message}`);
    process.exit(1);
});
