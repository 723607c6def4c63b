#!/usr/bin/env bash
# Checks the examples that use a model file: serve_model answers requests of ask_model, several at once, with the numbers
# that `tutti run` computes, and ends on SIGTERM; use_model.cc compiles as C++ and runs.
#   example_models.sh SERVE_MODEL ASK_MODEL TUTTI SOURCES LIBTUTTI SANITIZERS
set -euo pipefail

serve=$(realpath "$1") ask=$(realpath "$2") tutti=$(realpath "$3") sources=$4 library=$(realpath "$5") sanitizers=${6:-}
scratch=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch"

"$tutti" train mlp --data generated --steps 2 --batch 32 --base 8 --quiet --out run >/dev/null
"$tutti" export run a.model >/dev/null

# Three samples, as raw bytes and as a .npy file.
head -c $((3 * 32 * 32 * 3)) /dev/urandom >samples
header="{'descr': '|u1', 'fortran_order': False, 'shape': (3, 32, 32, 3), }"
{ printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"; cat samples; } >samples.npy
"$tutti" run a.model samples.npy --devices cpu:0 | tr ' ' '\n' >expected
[[ $(wc -l <expected) == 30 ]]

"$serve" a.model socket 2 >log &
server=$!
until [[ -S socket ]] && grep -q '^ready on socket: cpu:0, ' log; do
    kill -0 "$server" # fails if the server has ended
    sleep 0.05
done
clients=()
for i in 1 2 3 4 5 6 7 8; do
    "$ask" socket <samples >"answer$i" &
    clients+=($!)
done
for client in "${clients[@]}"; do wait "$client"; done
for i in 1 2 3 4 5 6 7 8; do cmp expected "answer$i"; done

# More answers than a socket holds.
for i in {1..1000}; do cat samples; done >many
timeout 60 "$ask" socket <many >answers
cmp <(for i in {1..1000}; do cat expected; done) answers

# An incomplete request gets no answer, the client says so, and the server goes on.
if head -c 100 samples | "$ask" socket >incomplete 2>message; then exit 1; fi
[[ ! -s incomplete ]]
[[ $(<message) == "ask_model: no answer: expected the bytes of one or more samples on standard input" ]]
"$ask" socket <samples | cmp expected -
kill "$server"
wait "$server"
server=
[[ ! -e socket ]]

# A damaged file is refused in one line.
printf x >>a.model
if "$serve" a.model socket 2>message; then exit 1; fi
[[ $(wc -l <message) == 1 ]]

if [[ -z $sanitizers ]] && command -v g++ >/dev/null; then
    truncate -s -1 a.model
    g++ -std=c++17 -Wall -Wextra -Werror -I"$sources/include" "$sources/examples/use_model.cc" \
        -o use_model "$library" -Wl,-rpath,"$(dirname "$library")"
    ./use_model a.model | tee labels
    [[ $(grep -cE '^[a-z]+ [0-9.e-]+$' labels) == 10 ]]
fi
