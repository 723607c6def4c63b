# Prepares a scratch folder for scripts of this folder: $scratch with $HOME and $TMPDIR in it, removed at the end, and
# $data, a data set of 256 images of 8 x 8 x 3 bytes in ten classes. To be sourced, after `tutti` is set.
export LC_ALL=C OMP_WAIT_POLICY=passive
scratch=$(mktemp -d)
# A child that a signal ends before it has become another program runs the trap too.
trap '[[ $BASHPID != "$$" ]] || rm -rf "$scratch"' EXIT
mkdir "$scratch/home" "$scratch/tmp"
export HOME=$scratch/home TMPDIR=$scratch/tmp
unset XDG_CACHE_HOME TUTTI_DATA
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../cli/arrays.sh"
write_array "$scratch/images.npy" '256, 8, 8, 3' '(int(i / 192) % 10 * 20 + i * 89 % 51) % 251' $((256 * 192))
write_array "$scratch/labels.npy" '256,' 'i % 10' 256
data=$scratch/images.npy,$scratch/labels.npy
