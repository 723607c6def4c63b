#!/usr/bin/env bash
# Tests what happens if processes cannot train together: their builds, options, data or devices differ, or one of them
# lacks something. All processes must end with status 2 (4 if one does not begin), after one line that names rank and host;
# nothing is written and no process is left. Run by hosts.sh, on two hosts with two ranks each.
#   check_mismatches.sh TUTTI SOURCE [--all]
# SOURCE is the source folder. Without --all only a few cases are tested.
set -uo pipefail

tutti=$1 source=$2 all=${3:-}
build=$(dirname "$tutti")
work=$TMPDIR/mismatches
mkdir "$work"
run=(train mlp --data generated --steps 3 --batch 64 --quiet)

declare -A notices # per case: part of a notice that it prints

# expect CASE STATUS PATTERN COMMAND...: runs a command in the background, which prints one line of Tutti that matches
# the pattern. OUT in the command is replaced by a run folder of its own.
expect() {
    local case=$1
    cases+=("$case")
    check "$@" >"$work/$case.result" 2>&1 &
}

check() { # as expect
    local case=$1 expected=$2 pattern=$3 out=$work/$1.run log=$work/$1.log status lines
    shift 3
    timeout 100 "${@/#OUT/$out}" >"$log" 2>&1
    status=$?
    lines=$(grep '^tutti: ' "$log" | grep -v '^tutti: notice: ')
    ((status == expected)) || echo "status $status, expected $expected"
    [[ $lines =~ ^$pattern$ ]] || echo "expected one line of Tutti that matches: $pattern"
    grep -Eq "^tutti: notice: .*${notices[$case]:-}" "$log" || [[ ! ${notices[$case]:-} ]] || echo "expected a notice: ${notices[$case]}"
    ((expected == 0)) || [[ ! -e $out ]] || echo "a run folder was written"
    # Processes on other hosts may take a moment longer than mpirun.
    for ((i = 0; i < 50; i++)); do pgrep -f "$out" >"$work/$case.left" || return; sleep 0.1; done
    echo "processes are left: $(<"$work/$case.left")"
}

finish() {
    local case failed=0
    wait
    for case in "${cases[@]}"; do
        [[ -s $work/$case.result ]] || continue
        echo "FAILED  $case: $(<"$work/$case.result")"
        sed 's/^/    /' "$work/$case.log"
        failed=1
    done
    echo "${#cases[@]} cases"
    exit $failed
}

# pair CASE PATTERN ARGUMENT...: ranks 0 and 1, on h1, run the training; ranks 2 and 3, on h2, with more arguments.
pair() {
    local case=$1 pattern=$2
    shift 2
    expect "$case" 2 "$pattern" mpirun -n 2 "$tutti" "${run[@]}" --out OUT : -n 2 "$tutti" "${run[@]}" --out OUT "$@"
}

pair options "tutti: rank 2 on host 'h2': its options are not those of rank 0: --rate 0.3 instead of 0.[0-9]*; \
if each process is to train alone, add --independent" --rate 0.3
expect data 2 "tutti: rank 3 on host 'h2': '/nowhere' does not exist: .*" \
    mpirun -n 3 "$tutti" "${run[@]}" --out OUT : -n 1 "$tutti" "${run[@]}" --data /nowhere --out OUT
expect interface 2 "tutti: rank 0 on host 'h1': no network interface is named 'nope0'; this host has lo, eth0" \
    mpirun -n 4 "$tutti" "${run[@]}" --interface nope0 --out OUT
# Another instruction set on h2, if this machine has several.
isa=(mpirun -n 2 "$tutti" "${run[@]}" --out OUT : -n 2 env TUTTI_ISA=baseline "$tutti" "${run[@]}" --out OUT)
if ! "$tutti" devices | grep -q '^cpu:0 .*, baseline, '; then
    unequal="tutti: rank 2 on host 'h2' computes with baseline, [^;]*, but rank 0 on host 'h1' with [^;]*"
    expect isa 2 "$unequal: with strategy 'mirrored' their copies [^;]*; set the environment variable TUTTI_ISA .*" "${isa[@]}"
    expect isa_invariant 2 "$unequal: 'invariant' needs [^;]*; set the environment variable TUTTI_ISA .*" \
        "${isa[@]/--quiet/--invariant=4}"
    notices[isa_central]="the processes have different devices \(rank 2 on host 'h2': .*, baseline, .*; rank 0 on host 'h1': "
    expect isa_central 0 '' "${isa[@]/--quiet/--strategy=central}"
fi
expect indivisible 0 '' mpirun -n 4 "$tutti" "${run[@]}" --batch 30 --out OUT
[[ $all == --all ]] || finish
wait

# ---- settings ----
other_model=("${run[@]/mlp/tutorial-cnn}")
expect model 2 "tutti: rank 2 on host 'h2' and rank 0 on host 'h1' cannot train together: its model is tutorial-cnn instead of mlp" \
    mpirun -n 2 "$tutti" "${run[@]}" --out OUT : -n 2 "$tutti" "${other_model[@]}" --out OUT
pair devices "tutti: rank 2 on host 'h2' and rank 0 on host 'h1' cannot train together: its devices are of kind ref instead of cpu" \
    --devices ref
expect small_batch 2 "tutti: strategy 'mirrored': a batch of 2 cannot be divided into 4 shards, .*" \
    mpirun -n 4 "$tutti" "${run[@]}" --batch 2 --out OUT
expect no_model 2 "tutti: unknown network 'mpl': .*" \
    mpirun -n 4 "$tutti" train mpl --data generated --steps 3 --out OUT
wait

# ---- what hosts may have different versions of, or not at all ----
# Two folders of images that differ in one image.
"$tutti" data sample generated --count 24 --out "$work/samples" >/dev/null || exit
for set in a b; do
    mkdir -p "$work/$set"/{even,odd}
    number=0
    for image in "$work"/samples/*; do
        class=$((number++ % 2))
        cp "$image" "$work/$set/$( ((class)) && echo odd || echo even)/"
    done
done
find "$work/b/odd" -type f | sort | tail -n 1 | xargs rm
sed 's/\.base = 32/.base = 16/' "$source/examples/mynet.c" >"$work/mynet.c"

folder=(--steps 3 --batch 8 --quiet --out OUT)
own=(train "$source/examples/mynet.c" --data generated --steps 3 --batch 16 --quiet)
expect images 2 "tutti: rank 2 on host 'h2' and rank 0 on host 'h1' cannot train together: its data set is b with digest \
[0-9a-f]{12} instead of a with digest [0-9a-f]{12}" \
    mpirun -n 2 "$tutti" train mlp --data "$work/a" "${folder[@]}" : -n 2 "$tutti" train mlp --data "$work/b" "${folder[@]}"
expect network 2 "tutti: rank 2 on host 'h2' has another graph \([0-9a-f]*\) than rank 0 on host 'h1' \([0-9a-f]*\): all \
processes must train the same" \
    mpirun -n 2 "$tutti" "${own[@]}" --out OUT : -n 2 "$tutti" train "$work/mynet.c" "${own[@]:2}" --out OUT
wait
"$tutti" "${run[@]}" --out "$work/finished" >"$work/finished.log" 2>&1 || exit
expect resume 2 "tutti: rank 3 on host 'h2': --resume: '$work/invisible' is not a run folder .*" \
    mpirun -n 3 "$tutti" train "$work/finished" --resume : -n 1 "$tutti" train "$work/invisible" --resume

# ---- installations ----
# install NAME: copies what is installed, for a host whose installation differs.
install() {
    mkdir "$work/$1"
    cp -L "$build"/tutti "$build"/libtutti.so.0 "$build"/libtutti_train.so.0 "$build"/libtutti_mpi.so "$work/$1"
}
# with_installation CASE PATTERN: ranks 2 and 3, on h2, run the installation CASE.
with_installation() {
    expect "$1" 2 "$2" mpirun -n 2 "$tutti" "${run[@]}" --out OUT : \
        -n 2 env LD_LIBRARY_PATH="$work/$1" "$work/$1/tutti" "${run[@]}" --out OUT
}
# change_build_id LIBRARY: as if the library came from another build.
change_build_id() {
    local offset bytes
    read -r offset bytes < <(readelf -SW "$1" | sed -n 's/.*\.note\.gnu\.build-id *NOTE *[0-9a-f]* \([0-9a-f]*\) \([0-9a-f]*\).*/\1 \2/p')
    printf 'last' | dd of="$1" bs=1 seek=$((16#$offset + 16#$bytes - 4)) conv=notrunc status=none
}
version=$("$tutti" --version | cut -d' ' -f2)
for case in no_plugin no_mpi other_plugin other_version other_build other_train; do install "$case"; done
rm "$work/no_plugin/libtutti_mpi.so"
sed -i 's/libmpi\.so\.[0-9]*/libmpi.so.xx/' "$work/no_mpi/libtutti_mpi.so"
sed -i "s/$version/x.y.z/" "$work/other_plugin/libtutti_mpi.so"
sed -i "s/$version/x.y.z/g" "$work"/other_version/*
change_build_id "$work/other_build/libtutti.so.0"
change_build_id "$work/other_train/libtutti_train.so.0"
with_installation no_plugin "tutti: rank 2 on host 'h2': this process was started by mpirun .* but libtutti_mpi.so is not installed .*"
with_installation no_mpi "tutti: rank 2 on host 'h2': libmpi.so.xx: cannot open shared object file: .*: install the Open MPI .*"
with_installation other_plugin "tutti: rank 2 on host 'h2': '.*libtutti_mpi.so' is of version x.y.z, libtutti.so of version $version: .*"
wait
with_installation other_version "tutti: rank 2 on host 'h2' runs another build of Tutti \(version x.y.z, build .*"
with_installation other_build "tutti: rank 2 on host 'h2' runs another build of Tutti \(version $version, build .*"
with_installation other_train "tutti: rank 2 on host 'h2' and rank 0 on host 'h1' cannot train together: its libtutti_train is another \
build .*"
# Another version of Open MPI on h2.
install other_mpi
libmpi=$(ldd "$build/libtutti_mpi.so" | sed -n 's/.*libmpi\.so[^ ]* => \([^ ]*\) .*/\1/p')
cp -L "$libmpi" "$work/other_mpi/"
sed -i 's/Open MPI v%d\.%d\.%d/Open MPI v%d.%d.77/' "$work/other_mpi/$(basename "$libmpi")"
with_installation other_mpi "tutti: rank 2 on host 'h2' uses Open MPI [0-9]*\.[0-9]*\.77, rank 0 on host 'h1' Open MPI [0-9.]*: install the same MPI on all hosts"
# A process that does not begin: the others wait one minute longer than for a collective.
expect never_begins 4 "tutti: rank 0 on host 'h1': MPI has not connected the processes within 67 s: .*" \
    mpirun -n 1 "$tutti" "${run[@]}" --collective-timeout 2 --out OUT : -n 3 sleep 300
# A launcher that Open MPI does not know: every process finds itself alone.
expect other_launcher 2 "tutti: rank 0 on host 'h1': the launcher of another MPI library has started 4 processes, but Open MPI .* \
finds 1 of them: .*" env PMI_SIZE=4 PMI_RANK=0 "$tutti" "${run[@]}" --out OUT
finish
