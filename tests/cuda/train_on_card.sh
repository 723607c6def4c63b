#!/usr/bin/env bash
# `tutti train` without --devices trains on a card that can be used, and says so. One that cannot be used is not passed over
# in silence: one line says why the CPU trains instead. Where there is no card, or the user hides it, nothing is said.
#   train_on_card.sh TUTTI FOLDER_OF_THE_STAND_INS
set -uo pipefail

tutti=$(realpath "$1") stand_ins=$2 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# 64 pictures of 4 x 4 x 3 bytes, in arrays as NumPy writes them.
write_array() { # file, shape, how many bytes
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      awk "BEGIN { for (i = 0; i < $3; i++) printf \"%c\", i % 2 + 1 }"; } >"$1"
}
write_array images.npy '64, 4, 4, 3' $((64 * 48))
write_array labels.npy '64,' 64

runs=0
train() { # options of train: what it says into the file said
    "$tutti" train mlp --data images.npy,labels.npy --base 4 --batch 8 --steps 2 --out "run$((++runs))" "$@" >out 2>said && return
    echo "FAILED  train $*:"
    cat said
    failed=1
}
expect() { # title, regular expression of a line
    grep -qE "$2" said && return
    echo "FAILED  $1: expected a line '$2' of"
    cat said
    failed=1
}
expect_no_notice() { # title
    ! grep -q 'notice' said && return
    echo "FAILED  $1: expected no notice in"
    cat said
    failed=1
}

train
expect 'a card is used' '^run folder run[0-9]+, 2 steps, .*, on gpu:0$'
expect_no_notice 'a card is used'

passed_over='^tutti: notice: gpu:0 cannot be used, so the CPU is used: '
FAKE_CUDA_DRIVER_VERSION=12080 train
expect 'an old driver' "${passed_over}NVIDIA's driver serves CUDA 12\.8, but 13\.0 is needed: install driver 580 or later\$"
expect 'an old driver' ', on cpu:0$'
FAKE_CUDA_CAPABILITY=70 train
expect 'an old card' "${passed_over}its compute capability is 7\.0"

mkdir libraries
ln -s "$stand_ins"/lib*.so* libraries
rm libraries/libnvrtc*
TUTTI_CUDA_LIBRARIES=$scratch/libraries train --quiet
expect 'no NVRTC' "${passed_over}libnvrtc\.so\.13 was not found in .*: install CUDA 13"

FAKE_CUDA_DRIVER_VERSION=12080 train --ensemble 2
expect 'an ensemble' "${passed_over}NVIDIA's driver serves CUDA 12\.8"

FAKE_CUDA_DRIVER_VERSION=12080 train --devices cpu
expect_no_notice 'the CPU was asked for'
FAKE_CUDA_COUNT=0 CUDA_VISIBLE_DEVICES='' train
expect_no_notice 'cards are hidden'
TUTTI_CUDA=off FAKE_CUDA_DRIVER_VERSION=12080 train
expect_no_notice 'CUDA is off'
exit $failed
