#!/usr/bin/env bash
# Checks that libtutti_train.so works only with the libtutti.so of the same version: with another one the dynamic loader
# fails before any code runs, and names the missing symbol version.
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

# Another version: the same library with another symbol version of its private symbols, of the same length.
other=${version%?}x
LC_ALL=C sed -i "s/TUTTI_PRIVATE_$version/TUTTI_PRIVATE_$other/" "$work/libtutti.so.0"
output=$("$work/tutti" --version 2>&1) && fail "the command runs with a libtutti.so of another version: $output"
[[ $output == *"version \`TUTTI_PRIVATE_$version' not found (required by "* ]] || fail "unexpected message of the loader: $output"
echo "$output"
