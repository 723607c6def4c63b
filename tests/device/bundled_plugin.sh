#!/bin/sh
# A plug-in called libtutti_cuda.so that lies beside libtutti.so, or in the folder tutti/ there, is loaded without being
# named; TUTTI_CUDA=off keeps it out; one that cannot be loaded costs a line on stderr and nothing else.
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
if grep -q tally "$folder/out" || [ -s "$folder/err" ]; then fail "something is there without a plug-in"; fi

mkdir "$folder/tutti"
cp "$plugin" "$folder/tutti/libtutti_cuda.so"
devices "with a plug-in in the folder tutti/"
grep -q tally:0 "$folder/out" || fail "the plug-in in the folder tutti/ was not loaded"
rm "$folder/tutti/libtutti_cuda.so"

cp "$plugin" "$folder/libtutti_cuda.so"
devices "with a plug-in"
grep -q tally:0 "$folder/out" || fail "the plug-in beside the library was not loaded"
if [ -s "$folder/err" ]; then fail "a plug-in that works was spoken of"; fi

TUTTI_CUDA=off devices "with TUTTI_CUDA=off"
if grep -q tally "$folder/out"; then fail "TUTTI_CUDA=off was not heeded"; fi

TUTTI_CUDA=perhaps devices "with TUTTI_CUDA=perhaps"
grep -q "TUTTI_CUDA is 'perhaps': expected on or off" "$folder/err" || fail "a wrong TUTTI_CUDA was passed over"

echo "no library" > "$folder/libtutti_cuda.so"
devices "with a damaged plug-in"
[ "$(grep -c "libtutti_cuda.so' cannot be loaded" "$folder/err")" = 1 ] || fail "the damaged plug-in was not named once"
grep -q cpu:0 "$folder/out" || fail "the processor is gone"
