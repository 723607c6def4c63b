#!/usr/bin/env bash
# Tests tutti bench on several processes: the bits of one process, through shared memory and through messages, and what it
# reports. Run by hosts.sh.
#   check_bench.sh TUTTI
set -uo pipefail

tutti=$1
bench=("$tutti" bench tutorial-cnn --batch 16 --steps 2 --repeat 1 --trace-steps 2 --json)
failed=0
fail() { echo "FAILED  $*"; failed=1; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$2"; }

# Rank 0 and 1 share memory on the first host, 2 and 3 on the second.
one=$("${bench[@]}" --invariant 4 --devices cpu:0/4 2>/dev/null)
shared=$(mpirun --host "$(hostname):4" -n 4 "${bench[@]}" --invariant 4 --devices cpu:0 --threads 1 2>/dev/null)
hosts=$(mpirun -n 4 "${bench[@]}" --invariant 4 --devices cpu:0 --threads 1 2>/dev/null)
expected=$(field digest "$one")
for json in "$shared" "$hosts"; do
    [[ $expected && $(field digest "$json") == "$expected" ]] ||
        fail "4 processes: digest '$(field digest "$json")', one process '$expected'"
done

# The trace is that of rank 0, but all ranks run its steps. The single device is rank 0's.
json=$(mpirun -n 2 "${bench[@]}" --threads 1 --scaling --bf16-gradients yes --trace "$TMPDIR/trace.json") ||
    fail "--scaling --trace: status $?"
[[ -s $TMPDIR/trace.json ]] || fail 'no trace'
for name in ms_per_step per_s communication_ms overlapped bus_gb_per_s communication_bytes speedup efficiency; do
    [[ $(field $name "$json") =~ ^[0-9.e+-]+$ ]] || fail "'$name' is '$(field $name "$json")' in $json"
done
[[ $(field processes "$json") == 2 && $(field all_devices "$json") == 2 ]] || fail "processes and devices in $json"

# bf16 gradients: half the bytes.
full=$(field communication_bytes "$(mpirun -n 2 "${bench[@]}" --threads 1)") half=$(field communication_bytes "$json")
((half > 0 && full > half * 19 / 10)) || fail "$half bytes with bf16 gradients, $full without"
exit $failed
