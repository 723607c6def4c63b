#!/bin/sh
# A plug-in named libtutti_cuda.so next to libtutti.so, or in the folder tutti/ there, is loaded without being named.
# TUTTI_CUDA=off disables it. If it cannot be loaded, one line on stderr reports that, and everything else works.
#
#   bundled_plugin.sh TUTTI_PROGRAM TUTTI_LIBRARY PLUGIN
set -eu
program=$1 library=$2 plugin=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -L "$library" "$folder/libtutti.so.0"
LD_LIBRARY_PATH=$folder
export LD_LIBRARY_PATH
unset TUTTI_CUDA TUTTI_DEVICES

fail() {
    echo "bundled_plugin.sh: $1" >&2
    cat "$folder/out" "$folder/err" >&2
    exit 1
}
devices() {
    "$program" devices > "$folder/out" 2> "$folder/err" || fail "tutti devices failed $1"
}

devices "without a plug-in"
if grep -q tally "$folder/out" || [ -s "$folder/err" ]; then fail "unexpected output without a plug-in"; fi

mkdir "$folder/tutti"
cp "$plugin" "$folder/tutti/libtutti_cuda.so"
devices "with a plug-in in the folder tutti/"
grep -q tally:0 "$folder/out" || fail "the plug-in in the folder tutti/ was not loaded"
rm "$folder/tutti/libtutti_cuda.so"

cp "$plugin" "$folder/libtutti_cuda.so"
devices "with a plug-in"
grep -q tally:0 "$folder/out" || fail "the plug-in next to the library was not loaded"
if [ -s "$folder/err" ]; then fail "unexpected output on stderr for a working plug-in"; fi

TUTTI_CUDA=off devices "with TUTTI_CUDA=off"
if grep -q tally "$folder/out"; then fail "TUTTI_CUDA=off was ignored"; fi

TUTTI_CUDA=perhaps devices "with TUTTI_CUDA=perhaps"
grep -q "TUTTI_CUDA is 'perhaps': expected on or off" "$folder/err" || fail "an invalid TUTTI_CUDA was not reported"

echo "no library" > "$folder/libtutti_cuda.so"
devices "with a damaged plug-in"
[ "$(grep -c "libtutti_cuda.so' cannot be loaded" "$folder/err")" = 1 ] || fail "the damaged plug-in was not reported once"
grep -q cpu:0 "$folder/out" || fail "cpu:0 is not listed"
