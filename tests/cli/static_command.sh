#!/bin/bash
# Builds tutti-run with the preset static, and checks that it needs nothing but itself: it is linked with no library, has at
# most 6 MB, runs in a folder that contains only it and a model, and computes the bits of the command tutti.
#
#   static_command.sh CMAKE SOURCE BUILD COMPILER TUTTI
set -eu
cmake=$1 source=$2 build=$3 compiler=$4 tutti=$5
most=6000000
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "static_command.sh: $1" >&2
    exit 1
}

"$cmake" -S "$source" -B "$build" --preset static -DCMAKE_C_COMPILER="$compiler" > "$scratch/log" ||
    { cat "$scratch/log"; fail "cannot be configured"; }
"$cmake" --build "$build" --target tutti_run > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail "cannot be built"; }
if grep -i "warning" "$scratch/log"; then fail "the linker warns"; fi

readelf --dynamic --program-headers "$build/tutti-run" > "$scratch/elf"
if grep -E "NEEDED|INTERP" "$scratch/elf"; then fail "it needs shared libraries"; fi
size=$(stat -c %s "$build/tutti-run")
[ "$size" -le "$most" ] || fail "it has $size bytes: expected at most $most"
echo "tutti-run has $size bytes"

# A folder with nothing else; as its own root folder where that is allowed.
empty=$scratch/empty
mkdir "$empty"
cp "$build/tutti-run" "$empty"
if [ "$(id -u)" = 0 ]; then
    alone() { (cd "$empty" && env -i "$(command -v chroot)" "$empty" /tutti-run "$@"); }
elif unshare --map-root-user --root="$empty" /tutti-run --version > /dev/null 2>&1; then
    alone() { env -i "$(command -v unshare)" --map-root-user --root="$empty" /tutti-run "$@"; }
else
    alone() { (cd "$empty" && env -i ./tutti-run "$@"); }
fi
[ "$(alone --version)" = "tutti-run ${TUTTI_VERSION:?}" ] || fail "it does not print its version"

# An array of 5 images of random bytes.
header="{'descr': '|u1', 'fortran_order': False, 'shape': (5, 32, 32, 3), }"
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header"
    head -c 1000000 "$tutti" | tail -c $((5 * 32 * 32 * 3))
} > "$empty/images.npy"
cp "$source"/tests/data/pictures/colour.jpg "$source"/tests/data/pictures/palette8.png "$empty"

for network in mlp tutorial-cnn resnet20; do
    "$tutti" train "$network" --data generated --steps 3 --batch 16 --devices cpu:0 -q --out "$scratch/$network" > /dev/null
    "$tutti" export "$scratch/$network" "$empty/$network.model" > /dev/null
    alone verify "$network.model" --devices cpu > "$scratch/verified" || fail "$network is not verified"
    grep -q " 0 failed" "$scratch/verified" || fail "$network is not verified"
    for options in "-t 1 -b 1" "-t 2 -b 4"; do
        alone run "$network.model" images.npy $options --out theirs.npy > /dev/null
        "$tutti" run "$empty/$network.model" "$empty/images.npy" --devices cpu:0 --out "$scratch/ours.npy" > /dev/null
        cmp "$empty/theirs.npy" "$scratch/ours.npy" || fail "$network with $options: other bits than tutti"
    done
    alone predict "$network.model" colour.jpg palette8.png > "$scratch/theirs"
    (cd "$empty" && "$tutti" predict "$network.model" --devices cpu:0 colour.jpg palette8.png) > "$scratch/ours"
    cmp "$scratch/theirs" "$scratch/ours" || fail "$network: other predictions than tutti"
done

alone train mlp 2> "$scratch/error" && fail "it trains"
grep -q "^tutti-run: unknown command 'train': expected one that 'tutti-run --help' lists" "$scratch/error" ||
    fail "an unknown command gives: $(cat "$scratch/error")"
