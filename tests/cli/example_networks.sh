#!/usr/bin/env bash
# Checks that the training example creates and evaluates a run folder, and that the prediction example classifies
# images.
#   example_networks.sh TRAIN_NETWORK USE_NETWORK TUTTI
set -euo pipefail

train=$(realpath "$1") use=$(realpath "$2") tutti=$(realpath "$3")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

"$train" generated 60 | tee log
grep -qE '^step +60 of 60 +loss [0-9.]+ ' log
grep -qE '^test accuracy on 10000 images: [0-9.]+%$' log
[[ $(grep -cE '^  [a-z]+ +[0-9]+ of 1000$' log) == 10 ]]
"$tutti" data sample generated --count 3 >/dev/null
"$use" runs/mlp-generated-1 samples/*.png | tee predictions
[[ $(grep -cE '^samples/[0-9]{5}-[a-z]+\.png: [a-z]+, [0-9]+%$' predictions) == 3 ]]

# An error is reported in one line.
if "$use" runs/none samples/*.png 2>message; then exit 1; fi
[[ $(wc -l <message) == 1 ]]
