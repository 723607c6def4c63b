#!/usr/bin/env bash
# Checks the exported symbols: the shared libraries export the public functions (tu_…) and the internal functions of
# libtutti.so that other Tutti libraries call (TU__SHARED in src/), nothing else. No symbol is exported by both
# libraries, so that state (a thread's error message, the device registry) exists once. libtutti.so is not linked with
# libraries for images or the network.
#   exports.sh SOURCES LIBTUTTI LIBTUTTI_TRAIN
set -uo pipefail

sources=$1 core=$2 train=$3
fail() { echo "FAILED  $*"; exit 1; }
exported() { nm -D --defined-only "$1" | awk '$(NF - 1) != "A" {sub(/@.*/, "", $NF); print $NF}' | sort; } # A: names of versions

shared=$(grep -rhA1 --include='*.h' '^TU__SHARED ' "$sources" | grep -oE 'tu__[a-z0-9_]+[[(;]' | tr -d '[(;' | sort -u)
for library in "$core" "$train"; do
    names=$(exported "$library") || exit 1
    [[ -n $names ]] || fail "${library##*/} exports nothing"
    unexpected=$(grep -vE '^tu_[a-z0-9]' <<<"$names" | grep -vxF "$shared")
    [[ -z $unexpected ]] || fail "${library##*/} exports symbols that are neither public nor shared: ${unexpected//$'\n'/ }"
    echo "${library##*/}: $(grep -cE '^tu_[a-z0-9]' <<<"$names") public symbols, $(grep -cE '^tu__' <<<"$names") shared"
done
duplicates=$(comm -12 <(exported "$core") <(exported "$train"))
[[ -z $duplicates ]] || fail "exported by both libraries: ${duplicates//$'\n'/ }"

needs=$(ldd "$core") || exit 1
unwanted=$(grep -oE 'lib(tutti_train|curl[-a-z]*|png[0-9]*|jpeg|z)\.so' <<<"$needs" | sort -u)
[[ -z $unwanted ]] || fail "${core##*/} is linked with ${unwanted//$'\n'/ }"
