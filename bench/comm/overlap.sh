#!/usr/bin/env bash
# Measures how well communication between hosts overlaps with computing, over a link of a limited rate.
#   bench/comm/overlap.sh [BUILD]
#
# The hosts are network namespaces of this machine (tests/dist/hosts.sh), with one process each. A step cannot be faster
# than computing alone, nor than the time to the first gradient plus that of communication alone. The script measures
#
#     computing       a step of a process with its part of the batch, without communication, on all hosts at once
#     first gradient  from the start of a step to the start of its first all-reduce, from the trace of rank 0
#     communication   bench_process_group with as many bytes as a step
#     step            tutti bench on all hosts
#     MB sent         by the first host, counted at its network interface, per step
#
# in rounds, each once with gradients sent as f32 and as bf16, and prints the medians.
#
# Environment variables and their defaults:
#   MODEL    tutorial-cnn
#   BATCH    160            of all processes: choose it so that computing takes about as long as communication
#   HOSTS    2
#   THREADS  1              of each process; all hosts share the cores of this machine
#   RATE     1gbit          of each host's interface
#   ROUNDS   5              odd
set -euo pipefail

model=${MODEL:-tutorial-cnn} batch=${BATCH:-160} hosts=${HOSTS:-2} threads=${THREADS:-1} rate=${RATE:-1gbit}
rounds=${ROUNDS:-5}
steps=10 blocks=3 warmup=5 # of tutti bench; as many steps are traced as a block has

if [[ ${1:-} != --inside ]]; then # create the hosts
    cd "$(dirname "${BASH_SOURCE[0]}")/../.."
    build=$(realpath "${1:-build/release}")
    for program in tutti bench_process_group; do
        [[ -x $build/$program ]] || { echo "program '$build/$program' does not exist: build it" >&2; exit 2; }
    done
    exec tests/dist/hosts.sh --hosts "$hosts" --rate "$rate" "$BASH" "bench/comm/${BASH_SOURCE[0]##*/}" --inside "$build"
fi

build=$2
number() { sed -n "s/.*\"$1\":\([0-9.e+-]*\).*/\1/p"; }
bench() { # rank... options...: prints the JSON object of rank 0
    mpirun -n "$hosts" --bind-to none "$@" "$build/tutti" bench "$model" --threads "$threads" --steps $steps \
        --repeat $blocks --warmup $warmup --trace-steps $steps --json "${options[@]}"
}
computing() { # each process believes that it is alone
    options=(--batch $((batch / hosts)))
    bench env -u OMPI_COMM_WORLD_SIZE | number ms_per_step | sort -g | tail -1
}
communication() { # bytes
    mpirun -n "$hosts" --bind-to none "$build/bench_process_group" --rounds 9 "$1" | awk 'END { print $2 / 1000 }'
}
sent_bytes() { ip -s -s link show eth0 | awk '/TX:/ { getline; print $1 }'; }
# The time from the start of a traced step to its first collective.
first_gradient() { # trace
    python3 -c '
import json, statistics, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e.get("ph") == "X"]
start = {e["args"]["run"]: e["ts"] for e in events if e["cat"] == "run"}
first = {}
for e in events:
    if e["cat"] == "collective":
        first[e["args"]["run"]] = min(e["ts"], first.get(e["args"]["run"], e["ts"]))
print(statistics.median(first[r] - start[r] for r in start) / 1000)' "$1"
}

results=$TMPDIR/results
for ((round = 0; round < rounds; round++)); do
    echo "f32 computing $(computing)"
    for type in f32 bf16; do
        options=(--batch "$batch" --bf16-gradients "$([[ $type == bf16 ]] && echo yes || echo no)")
        before=$(sent_bytes)
        json=$(bench)
        after=$(sent_bytes)
        echo "$type sent $(((after - before) / (warmup + steps * (blocks + 1))))"
        echo "$type step $(number ms_per_step <<<"$json")"
        echo "$type communication $(communication $(($(number communication_bytes <<<"$json") / hosts)))"
        options+=(--trace "$TMPDIR/trace.json")
        bench >"$TMPDIR/traced"
        echo "$type first $(first_gradient "$TMPDIR/trace.json")"
    done
done >"$results"

echo "$model, batch $batch, $hosts hosts with 1 process of $threads thread(s) each, $rate; medians of $rounds rounds"
python3 - "$results" <<'TEXT'
import collections, statistics, sys
values = collections.defaultdict(list)
for line in open(sys.argv[1]):
    type, name, value = line.split()
    values[type, name].append(float(value))
median = {key: statistics.median(list) for key, list in values.items()}
types = ["f32", "bf16"]
for t in types:
    median[t, "computing"] = median["f32", "computing"]
    median[t, "least"] = max(median[t, "computing"], median[t, "first"] + median[t, "communication"])
    median[t, "ratio"] = median[t, "step"] / median[t, "least"]
    median[t, "sent"] /= 1e6
print(f"{'gradients sent as':36}" + "".join(f"{t:>10}" for t in types))
for title, name in [("computing, ms", "computing"), ("first gradient after, ms", "first"),
                    ("communication, ms", "communication"), ("least possible time of a step, ms", "least"),
                    ("step, ms", "step"), ("step / least possible time", "ratio"), ("MB sent per step", "sent")]:
    print(f"{title:36}" + "".join(f"{median[t, name]:10.2f}" for t in types))
TEXT
