#!/usr/bin/env bash
# Builds the Debian packages of the preset `package` and checks them with lintian. Runs the program from the extracted
# files of one package, and compiles a program against those of the other.
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
lintian=(lintian --fail-on error)
[[ $(id -u) != 0 ]] || lintian+=(--allow-root)
"${lintian[@]}" tutti_*.deb libtutti-dev_*.deb

[[ $(dpkg-deb --field tutti_*.deb Depends) == *libc6* ]]
[[ $(dpkg-deb --field libtutti-dev_*.deb Depends) == *"tutti (= $version-1)"* ]]
dpkg-deb --extract tutti_*.deb root
dpkg-deb --extract libtutti-dev_*.deb root
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/root" -name libtutti.so.0)")
export LD_LIBRARY_PATH
[[ $(root/usr/bin/tutti --version) == "tutti $version" ]]
root/usr/bin/tutti train mlp --data generated --steps 1 --quiet --devices cpu --out run >/dev/null
PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # the flags are words
"$compiler" -std=c17 "$source/examples/train_network.c" -o program $(pkg-config --cflags --libs tutti_train) -lm
[[ -s root/usr/share/doc/tutti/copyright && -s root/usr/share/man/man1/tutti.1.gz ]]
