#!/usr/bin/env bash
# Fuzzes all targets, each for the same processor time, at idle priority. See README.md.
#   fuzz.sh run [SECONDS] [TARGET...]       until each target has had so many seconds of processor time (default 1800)
#   fuzz.sh status                          prints the processor time, executions and failures of each target so far
#   fuzz.sh merge [TARGET...]               copies found inputs that reach new code to corpus/
#   fuzz.sh coverage [TARGET...]            prints how many lines of each parser the corpora reach
# The build folder is TUTTI_BUILD (default build/fuzz).
set -euo pipefail

tests=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$tests/../.." && pwd)
build=${TUTTI_BUILD:-$root/build/fuzz}
slice=${TUTTI_FUZZ_SLICE:-60}  # seconds of wall time until the next target's turn
corpus_limit=$((200 * 1024))   # bytes of a committed corpus, above which nothing is added
export ASAN_OPTIONS=strict_string_checks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

all_targets() { sed -n 's/^\([a-z0-9_]\{1,\}\) .*/\1/p' "$tests/parsers.txt"; }
work_of() { echo "$build/found/$1"; }
total_of() { cat "$(work_of "$1")/$2" 2>/dev/null || echo 0; }
failures_of() { find "$(work_of "$1")" -maxdepth 1 -type f '(' -name 'crash-*' -o -name 'timeout-*' -o -name 'oom-*' -o -name 'leak-*' ')' 2>/dev/null | wc -l; }

# A failure stops its target until the input is moved away: usually the next run would only find it again.
least_fuzzed() { # SECONDS TARGET...: the target with the least processor time below SECONDS
    local limit=$1 target seconds
    shift
    for target; do
        seconds=$(total_of "$target" cpu_seconds)
        ((${seconds%.*} >= limit || $(failures_of "$target") > 0)) || echo "$seconds $target"
    done | sort -n | sed -n '1s/.* //p'
}

fuzz_slice() { # TARGET SECONDS
    local target=$1 work executions
    work=$(work_of "$target")
    mkdir -p "$work/corpus"
    # In a subshell, so that `times` is that of this slice.
    (chrt --idle 0 "$build/tests/fuzz_$target" -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -close_fd_mask=1 -artifact_prefix="$work/" "$work/corpus" "$tests/corpus/$target" \
        >"$work/log" 2>&1 || true
     times >"$work/times")
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
    awk -v before="$(total_of "$target" cpu_seconds)" 'NR == 2 {
        for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); before += 60 * t[1] + t[2] }
        printf "%.1f\n", before }' "$work/times" >"$work/cpu_seconds.new"
    mv "$work/cpu_seconds.new" "$work/cpu_seconds"
    echo $(($(total_of "$target" executions) + ${executions:-0})) >"$work/executions"
}

run() { # SECONDS TARGET...
    local limit=$1 target
    shift
    while target=$(least_fuzzed "$limit" "$@") && [[ $target ]]; do
        fuzz_slice "$target" "$slice"
        echo "$target: $(total_of "$target" cpu_seconds) s of processor time, $(total_of "$target" executions) executions," \
            "$(find "$(work_of "$target")/corpus" -type f | wc -l) inputs, $(failures_of "$target") failures"
    done
    ! status | grep -v ' 0$' | sed 1d | grep .
}

status() {
    printf '%-20s %12s %12s %8s %8s\n' target 'cpu seconds' executions inputs failures
    for target in $(all_targets); do
        printf '%-20s %12s %12s %8s %8s\n' "$target" "$(total_of "$target" cpu_seconds)" "$(total_of "$target" executions)" \
            "$(find "$(work_of "$target")/corpus" -type f 2>/dev/null | wc -l)" "$(failures_of "$target")"
    done
}

# Adds the smallest of the found inputs that reach new code, and names them by their content.
merge() { # TARGET...
    local target work file used
    for target; do
        work=$(work_of "$target")
        [[ -d $work/corpus ]] || continue
        rm -rf "$work/merged"
        cp -r "$tests/corpus/$target" "$work/merged"
        "$build/tests/fuzz_$target" -merge=1 -timeout=20 -rss_limit_mb=2048 "$work/merged" "$work/corpus" >"$work/merge.log" 2>&1 ||
            { echo "fuzz.sh: merging $target failed: see $work/merge.log" >&2; return 1; }
        used=$(cat "$tests/corpus/$target"/* | wc -c)
        for file in $(cd "$work/merged" && ls -Sr); do
            [[ -e $tests/corpus/$target/$file ]] && continue
            used=$((used + $(stat -c %s "$work/merged/$file")))
            ((used <= corpus_limit)) || break
            cp "$work/merged/$file" "$tests/corpus/$target/$(cut -c 1-12 <<<"$file")"
        done
        echo "$target: $(find "$tests/corpus/$target" -type f | wc -l) inputs," \
            "$(cat "$tests/corpus/$target"/* | wc -c) bytes"
    done
}

coverage() { # TARGET...
    local target files
    cmake --build "$build" --target "${@/#/coverage_}" >"$build/coverage.log" || { tail "$build/coverage.log" >&2; return 1; }
    printf '%-20s %-28s %7s %8s %8s\n' target file lines reached percent
    for target; do
        LLVM_PROFILE_FILE=$build/$target.profraw "$build/tests/coverage_$target" "$tests/corpus/$target" >/dev/null 2>&1
        llvm-profdata merge -o "$build/$target.profdata" "$build/$target.profraw"
        mapfile -t files < <(sed -n "s/^$target //p" "$tests/parsers.txt" | tr ' ' '\n' | sed "s|^|$root/src/|")
        # Columns of `llvm-cov report`: file, then count, missed and percent of regions, functions and lines. The file is
        # relative to the folder that all have in common.
        llvm-cov report "$build/tests/coverage_$target" -instr-profile="$build/$target.profdata" "${files[@]}" |
            awk -v target="$target" '/\.c / && $1 !~ /tests\// {
                sub(/.*\//, "", $1)
                printf "%-20s %-28s %7d %8d %7.1f%%\n", target, $1, $8, $8 - $9, 100 * ($8 - $9) / $8 }'
    done
}

command=${1:-}
shift || true
seconds=1800
if [[ $command == run && ${1:-} =~ ^[0-9]+$ ]]; then
    seconds=$1
    shift
fi
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(all_targets)
case $command in
run) run "$seconds" "${targets[@]}" ;;
status) status ;;
merge) merge "${targets[@]}" ;;
coverage) coverage "${targets[@]}" ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
