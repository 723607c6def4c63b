#!/usr/bin/env bash
# Builds the Debian packages of the preset `package` and checks them with lintian. Runs the program from the extracted
# files of one package, on two processes with those of another, and compiles a program against those of the third.
#   package.sh CMAKE SOURCE_DIR BUILD_DIR C_COMPILER VERSION
set -euo pipefail

cmake=$1 source=$2 build=$3 compiler=$4 version=$5
for tool in dpkg-deb dpkg-shlibdeps lintian; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed (Debian: apt install dpkg-dev lintian)"; exit 77; }
done
rm -rf "$build"
mkdir -p "$build"
trap 'rm -rf "$build"' EXIT

cd "$source"
{
    "$cmake" --preset package -B "$build" && "$cmake" --build "$build" --target tutti_cli &&
        (cd "$build" && "${cmake%cmake}cpack" -G DEB)
} >"$build/log" 2>&1 || { tail -n 40 "$build/log"; exit 1; }

cd "$build"
packages=(tutti_*.deb libtutti-dev_*.deb)
[[ ! -e libtutti_mpi.so ]] || packages+=(tutti-mpi_*.deb)
lintian=(lintian --fail-on error)
[[ $(id -u) != 0 ]] || lintian+=(--allow-root)
"${lintian[@]}" "${packages[@]}"

[[ $(dpkg-deb --field tutti_*.deb Depends) == *libc6* ]]
[[ $(dpkg-deb --field libtutti-dev_*.deb Depends) == *"tutti (= $version-1)"* ]]
for package in "${packages[@]}"; do dpkg-deb --extract "$package" root; done
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/root" -name libtutti.so.0)")
export LD_LIBRARY_PATH
[[ $(root/usr/bin/tutti --version) == "tutti $version" ]]
root/usr/bin/tutti train mlp --data generated --steps 1 --quiet --devices cpu --out run >/dev/null
if [[ -e libtutti_mpi.so ]]; then
    [[ $(dpkg-deb --field tutti-mpi_*.deb Depends) == *libopenmpi* ]]
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 root/usr/bin/tutti train mlp --data generated \
        --steps 1 --quiet --devices cpu --out run2 >run2.log 2>&1 || { cat run2.log; exit 1; }
fi
PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # the flags are words
"$compiler" -std=c17 "$source/examples/train_network.c" -o program $(pkg-config --cflags --libs tutti_train) -lm
[[ -s root/usr/share/doc/tutti/copyright && -s root/usr/share/man/man1/tutti.1.gz ]]
