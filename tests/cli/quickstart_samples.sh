#!/usr/bin/env bash
# Tests ./quickstart when it cannot write sample images: without libpng it says so and succeeds; any other error makes
# it fail. Runs the part of the script that follows the build, with a fake program.
#   quickstart_samples.sh SOURCE_FOLDER
set -euo pipefail

source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
mkdir build
cat >after_build.sh <<'SCRIPT'
set -euo pipefail
data=generated tutti=./tutti
setup_die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }
SCRIPT
sed -n '/^show() /,$p' "$source/quickstart" >>after_build.sh
cat >tutti <<'PROGRAM'
#!/usr/bin/env bash
case "$1 $2" in
'train tutorial-cnn') echo 'run         runs/one' ;;
'data sample')
    if [[ -n $ERROR ]]; then echo "tutti: $ERROR" >&2; exit 1; fi
    mkdir -p runs/one/samples && touch runs/one/samples/1.png && echo runs/one/samples/1.png
    ;;
esac
PROGRAM
chmod +x tutti

expect() { # ERROR_OF_DATA_SAMPLE EXIT_STATUS REGEX_IN_OUTPUT
    local status=0
    ERROR=$1 bash after_build.sh >out 2>&1 || status=$?
    ((status == $2)) && grep -q "$3" out && return
    echo "FAILED  '$1': status $status, expected $2 and '$3' in:"
    cat out
    exit 1
}
expect '' 0 '^  the images above      runs/one/samples$'
expect 'cannot write a PNG file: this Tutti was built without libpng' 0 '^  the images above      none: .* without libpng$'
expect 'No space left on device' 1 '^quickstart: no images could be written to runs/one/samples'
! grep -q '^Done' out
