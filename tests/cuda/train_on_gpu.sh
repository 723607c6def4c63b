#!/usr/bin/env bash
# `tutti train` without --devices uses a GPU if possible and says so. If a GPU cannot be used, one line explains why
# the CPU is used instead. Without a GPU, or if the user hides it, nothing is printed.
#   train_on_gpu.sh TUTTI FOLDER_OF_FAKE_LIBRARIES
set -uo pipefail

tutti=$(realpath "$1") fake_libraries=$2 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# 64 images of 4 x 4 x 3 bytes, as NumPy arrays.
write_array() { # file, shape, number of bytes
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      awk "BEGIN { for (i = 0; i < $3; i++) printf \"%c\", i % 2 + 1 }"; } >"$1"
}
write_array images.npy '64, 4, 4, 3' $((64 * 48))
write_array labels.npy '64,' 64

runs=0
train() { # options of train; standard error goes to stderr.log
    "$tutti" train mlp --data images.npy,labels.npy --base 4 --batch 8 --steps 2 --out "run$((++runs))" "$@" >out 2>stderr.log && return
    echo "FAILED  train $*:"
    cat stderr.log
    failed=1
}
expect() { # title, regular expression of a line
    grep -qE "$2" stderr.log && return
    echo "FAILED  $1: no line matches '$2' in:"
    cat stderr.log
    failed=1
}
expect_no_notice() { # title
    ! grep -q 'notice' stderr.log && return
    echo "FAILED  $1: unexpected notice in:"
    cat stderr.log
    failed=1
}

train
expect 'a GPU is used' '^run folder run[0-9]+, 2 steps, .*, on gpu:0$'
expect_no_notice 'a GPU is used'

gpu_unusable_notice='^tutti: notice: gpu:0 cannot be used, so the CPU is used: '
FAKE_CUDA_DRIVER_VERSION=12080 train
expect 'an old driver' "${gpu_unusable_notice}the NVIDIA driver supports CUDA 12\.8, but 13\.0 is needed: install driver 580 or later\$"
expect 'an old driver' ', on cpu:0$'
FAKE_CUDA_CAPABILITY=70 train
expect 'an old GPU' "${gpu_unusable_notice}its compute capability is 7\.0"

mkdir libraries
ln -s "$fake_libraries"/lib*.so* libraries
rm libraries/libnvrtc*
TUTTI_CUDA_LIBRARIES=$scratch/libraries train --quiet
expect 'no NVRTC' "${gpu_unusable_notice}libnvrtc\.so\.13 was not found in .*: install CUDA 13"

FAKE_CUDA_DRIVER_VERSION=12080 train --ensemble 2
expect 'an ensemble' "${gpu_unusable_notice}the NVIDIA driver supports CUDA 12\.8"

FAKE_CUDA_DRIVER_VERSION=12080 train --devices cpu
expect_no_notice 'the CPU was requested'
FAKE_CUDA_COUNT=0 CUDA_VISIBLE_DEVICES='' train
expect_no_notice 'GPUs are hidden'
TUTTI_CUDA=off FAKE_CUDA_DRIVER_VERSION=12080 train
expect_no_notice 'CUDA is off'
exit $failed
