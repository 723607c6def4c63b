#!/usr/bin/env bash
# libtutti_train.so and libtutti_cuda.so work with the libtutti.so of their own version. With another one the system's loader
# stops the command, which needs both libraries, before any code runs, and names the version that is missing.
#   other_version.sh TUTTI LIBTUTTI LIBTUTTI_TRAIN VERSION
set -uo pipefail

tutti=$1 core=$2 train=$3 version=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED  $*"; exit 1; }

cp "$tutti" "$work/tutti"
cp "$core" "$work/libtutti.so.0"
cp "$train" "$work/libtutti_train.so.0"
[[ $(TUTTI_CUDA=off "$work/tutti" --version) == "tutti $version" ]] || fail "the command does not run from another folder"

# Another version: the same library under another name of its private symbols, of the same length.
other=${version%?}x
LC_ALL=C sed -i "s/TUTTI_PRIVATE_$version/TUTTI_PRIVATE_$other/" "$work/libtutti.so.0"
said=$("$work/tutti" --version 2>&1) && fail "the command runs with a libtutti.so of another version: $said"
[[ $said == *"version \`TUTTI_PRIVATE_$version' not found (required by "* ]] || fail "the loader says: $said"
echo "$said"
