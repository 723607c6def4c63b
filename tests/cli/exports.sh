#!/usr/bin/env bash
# The shared libraries show the public functions (tu_…) and those internal ones of libtutti.so that other libraries of
# Tutti call (TU__SHARED in src/), and nothing else: no other tu__…, no bare names. No symbol is in both, so that what has
# state (the message of a thread, the registry of devices) exists once. libtutti.so needs no library for pictures or
# the network.
#   exports.sh SOURCES LIBTUTTI LIBTUTTI_TRAIN
set -uo pipefail

sources=$1 core=$2 train=$3
fail() { echo "FAILED  $*"; exit 1; }
exported() { nm -D --defined-only "$1" | awk '$(NF - 1) != "A" {sub(/@.*/, "", $NF); print $NF}' | sort; } # A: names of versions

shared=$(grep -rhA1 --include='*.h' '^TU__SHARED ' "$sources" | grep -oE 'tu__[a-z0-9_]+[[(;]' | tr -d '[(;' | sort -u)
for library in "$core" "$train"; do
    names=$(exported "$library") || exit 1
    [[ -n $names ]] || fail "${library##*/} exports nothing"
    strange=$(grep -vE '^tu_[a-z0-9]' <<<"$names" | grep -vxF "$shared")
    [[ -z $strange ]] || fail "${library##*/} exports what is neither public nor shared: ${strange//$'\n'/ }"
    echo "${library##*/}: $(grep -cE '^tu_[a-z0-9]' <<<"$names") public symbols, $(grep -cE '^tu__' <<<"$names") shared"
done
twice=$(comm -12 <(exported "$core") <(exported "$train"))
[[ -z $twice ]] || fail "exported by both libraries: ${twice//$'\n'/ }"

needs=$(ldd "$core") || exit 1
unwanted=$(grep -oE 'lib(tutti_train|curl[-a-z]*|png[0-9]*|jpeg|z)\.so' <<<"$needs" | sort -u)
[[ -z $unwanted ]] || fail "${core##*/} needs ${unwanted//$'\n'/ }"
