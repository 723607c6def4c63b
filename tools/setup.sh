# Functions shared by ./check and ./quickstart: install missing packages, build a preset. This file is sourced, not run.
#
# The tables list dependencies, each with a command that tests for it. Only missing ones are installed. Without apt the
# script lists the packages for the user to install.
# shellcheck shell=bash disable=SC2034 # the tables are used by name

# dependency | command that tests for it | package of Debian 12 (and Ubuntu) | feature that needs it
setup_needs_build='
gcc         | command -v gcc                          | gcc
libc        | test -e /usr/include/stdio.h            | libc6-dev
cmake       | command -v cmake                        | cmake
ninja       | command -v ninja                        | ninja-build
pkg-config  | command -v pkg-config                   | pkg-config
'
# Without one of these the build lacks the feature in the last column.
setup_needs_optional='
oneDNN      | test -e /usr/include/dnnl.h             | libdnnl-dev          | fast bf16 on the CPU
lapack      | pkg-config --exists lapack              | liblapack-dev        | fast linear algebra on the CPU
libpng      | pkg-config --exists libpng              | libpng-dev           | PNG images
libjpeg     | test -e /usr/include/jpeglib.h          | libjpeg-dev          | JPEG images
giflib      | test -e /usr/include/gif_lib.h          | libgif-dev           | GIF images
libwebp     | pkg-config --exists libwebp             | libwebp-dev          | WebP images
libcurl     | pkg-config --exists libcurl             | libcurl4-openssl-dev | downloading data sets
zlib        | test -e /usr/include/zlib.h             | zlib1g-dev           | compressed data sets
SQLite      | setup_has_library libsqlite3.so.0       | libsqlite3-0         | studies of tutti tune
libpq       | setup_has_library libpq.so.5            | libpq5               | studies in a PostgreSQL database
'
setup_needs_check='
cmocka      | pkg-config --exists cmocka              | libcmocka-dev
g++         | command -v g++                          | g++
clang       | command -v clang                        | clang
clang-format| command -v clang-format                 | clang-format
clang-tidy  | command -v clang-tidy                   | clang-tidy
mandoc      | command -v mandoc                       | mandoc
mpicc       | command -v mpicc                        | libopenmpi-dev
mpirun      | command -v mpirun                       | openmpi-bin
iproute2    | test -x /usr/sbin/tc -o -x /sbin/tc     | iproute2
PostgreSQL  | compgen -G '/usr/lib/postgresql/*/bin/postgres' | postgresql
'
setup_needs_long='
Slurm       | test -x /usr/sbin/slurmctld             | slurm-wlm
munge       | test -x /usr/sbin/munged                | munge
'
setup_needs_fuzz='
libFuzzer   | setup_has_libfuzzer                     | libclang-rt-dev
'

setup_name=${0##*/}

setup_say() { printf '%s: %s\n' "$setup_name" "$*"; }
setup_die() { printf '%s: %s\n' "$setup_name" "$*" >&2; exit 1; }

setup_has_libfuzzer() {
    local resources
    resources=$(clang -print-resource-dir) && [[ -e $resources/lib/linux/libclang_rt.fuzzer-$(uname -m).a ]]
}

# Libraries that are opened at run time, for which no headers are needed.
setup_has_library() { [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p) == *"$1"* ]]; }

# setup_missing GROUP…: prints a line "package|feature" for each missing dependency.
setup_missing() {
    local group table name probe package without
    for group in "$@"; do
        table=setup_needs_$group
        while IFS='|' read -r name probe package without; do
            [[ -n ${name// /} ]] || continue
            eval "$probe" >/dev/null 2>&1 || printf '%s|%s\n' "${package// /}" "${without# }"
        done <<<"${!table}"
    done
}

# setup_apt PACKAGE…: installs those packages that apt knows, as root. Calls sudo once, which may ask for a password.
setup_apt() {
    local as_root=()
    if [[ $(id -u) != 0 ]]; then
        command -v sudo || { echo 'Run this once as root, or install sudo.'; return 1; }
        as_root=(sudo)
    fi
    # shellcheck disable=SC2016 # expanded by the shell that is started
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive bash -c '
        apt=(apt-get -q -y -o Acquire::Retries=3 -o Acquire::http::Timeout=20)
        known=()
        "${apt[@]}" update
        for package; do if apt-cache show "$package" >/dev/null; then known+=("$package"); fi; done
        ((${#known[@]})) && "${apt[@]}" install --no-install-recommends "${known[@]}"' setup "$@"
}

# setup_install GROUP… [-- GROUP…]: installs the dependencies of these groups. If that fails, a dependency of the groups
# before "--" ends the script; for those after it one line lists the missing features.
setup_install() {
    local required=() optional=() missing
    while (($#)) && [[ $1 != -- ]]; do required+=("$1"); shift; done
    (($#)) && shift
    optional=("$@")
    mapfile -t missing < <(setup_missing "${required[@]}" "${optional[@]}")
    ((${#missing[@]})) || return 0
    if command -v apt-get >/dev/null; then
        setup_say "installing ${missing[*]%%|*}"
        mkdir -p build
        setup_apt "${missing[@]%%|*}" >build/install.log 2>&1 || true # what is still missing is reported below
    fi
    mapfile -t missing < <(setup_missing "${required[@]}")
    if ((${#missing[@]})); then
        command -v apt-get >/dev/null && setup_show_failure install "apt could not install ${missing[*]%%|*}"
        setup_die "missing packages: ${missing[*]%%|*} (Debian's names): install them with your package manager"
    fi
    mapfile -t missing < <(setup_missing "${optional[@]}")
    ((${#missing[@]})) || return 0
    local list
    printf -v list ', %s)' "${missing[@]/|/ (}"
    setup_say "these packages could not be installed, and the build lacks their features: ${list:2}"
}

# setup_show_failure LOG_NAME WHAT: prints the end of build/LOG_NAME.log and exits.
setup_show_failure() {
    tail -n 60 "build/$1.log" >&2
    setup_die "FAILED: $2 (complete log: build/$1.log)"
}

# setup_stage LOG_NAME WHAT COMMAND…: runs the command, prints one line if it succeeds and its output if it fails.
setup_stage() {
    local log=$1 what=$2 begin=$SECONDS
    shift 2
    "$@" >"build/$log.log" 2>&1 </dev/null || setup_show_failure "$log" "$what"
    setup_say "$what: ok ($((SECONDS - begin)) s)"
}

# setup_build PRESET [CMAKE_OPTION…] [-- BUILD_OPTION…]
setup_build() {
    local preset=$1 configure=()
    shift
    while (($#)) && [[ $1 != -- ]]; do configure+=("$1"); shift; done
    (($#)) && shift
    cmake --preset "$preset" "${configure[@]}" && cmake --build --preset "$preset" "$@"
}

# setup_find_gpu: prints a file that exists if there is an NVIDIA GPU (as in src/device/nvidia_gpu.c), else fails.
setup_find_gpu() {
    compgen -G '/dev/nvidia[0-9]*' || compgen -G '/proc/driver/nvidia/gpus/*' || compgen -G /usr/lib/wsl/lib/libcuda.so.1
}

# setup_report_cuda BUILD_LOG: if the machine has an NVIDIA GPU, says why the build with this log has no CUDA device.
setup_report_cuda() {
    local reason
    setup_find_gpu >/dev/null || return 0
    reason=$(sed -n 's/^-- CUDA device not built: //p' "$1" | tail -n 1)
    [[ -z $reason ]] || setup_say "the NVIDIA GPU of this machine will not be used: $reason; then run this again"
}
