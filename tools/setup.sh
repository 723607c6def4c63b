# What ./check and ./quickstart share: installing what is missing, and building a preset. Sourced, not run.
#
# A table of needs, each with a probe; only what its probe does not find is installed, so that a machine that has
# everything is left alone, and one without apt is told what to install by hand.
# shellcheck shell=bash disable=SC2034 # the tables are reached by name

# need name | how to tell that it is there | Debian package
setup_needs_build='
gcc         | command -v gcc                          | gcc
libc        | test -e /usr/include/stdio.h            | libc6-dev
cmake       | command -v cmake                        | cmake
ninja       | command -v ninja                        | ninja-build
pkg-config  | command -v pkg-config                   | pkg-config
oneDNN      | test -e /usr/include/dnnl.h             | libdnnl-dev
lapack      | pkg-config --exists lapack              | liblapack-dev
libpng      | pkg-config --exists libpng              | libpng-dev
libjpeg     | test -e /usr/include/jpeglib.h          | libjpeg62-turbo-dev
libcurl     | pkg-config --exists libcurl             | libcurl4-openssl-dev
zlib        | test -e /usr/include/zlib.h             | zlib1g-dev
'
setup_needs_check='
cmocka      | pkg-config --exists cmocka              | libcmocka-dev
g++         | command -v g++                          | g++
clang       | command -v clang                        | clang
clang-format| command -v clang-format                 | clang-format
clang-tidy  | command -v clang-tidy                   | clang-tidy
mandoc      | command -v mandoc                       | mandoc
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

# setup_install build [check] [fuzz]: sees to the needs of these groups.
setup_install() {
    local group name probe package missing=() table
    for group in "$@"; do
        table=setup_needs_$group
        while IFS='|' read -r name probe package; do
            [[ -n ${name// /} ]] || continue
            eval "$probe" >/dev/null 2>&1 || missing+=("${package// /}")
        done <<<"${!table}"
    done
    ((${#missing[@]})) || return 0

    command -v apt-get >/dev/null ||
        setup_die "missing: ${missing[*]} (Debian's names). Install them with your system's package manager."
    setup_say "installing ${missing[*]}"
    local as_root=()
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || setup_die "missing: ${missing[*]}. Run this once as root, or install sudo."
        as_root=(sudo)
    fi
    mkdir -p build
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3)
    { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } \
        >build/install.log 2>&1 || setup_show_failure install "apt could not install ${missing[*]}"
}

# setup_show_failure LOG_NAME WHAT: the end of build/LOG_NAME.log, and out.
setup_show_failure() {
    tail -n 60 "build/$1.log" >&2
    setup_die "FAILED: $2 (all of it in build/$1.log)"
}

# setup_stage LOG_NAME WHAT COMMAND…: runs the command quietly; one line when it is done, its output when it fails.
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
