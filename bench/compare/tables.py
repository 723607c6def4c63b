#!/usr/bin/env python3
"""Trains mlp on tables next to scikit-learn's MLPClassifier and MLPRegressor, and prints both errors.

    bench/compare/tables.py [--tutti build/release/tutti] [--splits 10] [--seeds 2] [--epochs 100] [--only SETS]
    bench/compare/tables.py --defaults [--all-rows] [...]

Every split shuffles the rows, and both sides train on the same nine tenths and are tested on the same tenth, which Tutti
chooses, with several seeds each. The standard error is that of the mean difference between the two, split by split. Both
have two hidden layers of 64 units and one thread, and use Adam with a constant rate of 0.001, batches of 32, the same number
of epochs and no weight decay. With --defaults they use their own default settings instead, and Tutti keeps a tenth of its
training rows for validation, unless --all-rows is given.

scikit-learn gets a pipeline that does what Tutti does by itself: missing numbers are replaced by the mean and marked, numbers
and the target are standardised, categories are one-hot. The sets marked with * have every twentieth cell removed and one column
of numbers turned into text. friedman500 and friedman2000 are samples of make_friedman1 with noise of deviation 1; --only names
them, they are not part of the list.
"""

import argparse
import csv
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from sklearn import datasets
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

WIDTH, RATE, BATCH = 64, 0.001, 32
SETS = [("iris", False), ("wine", False), ("breast_cancer", False), ("breast_cancer", True), ("digits", False),
        ("diabetes", False), ("diabetes", True)]


def load(name, damaged):
    """Returns the names of the columns, the rows (numbers, texts or None), and the targets."""
    if name.startswith("friedman"):
        found = datasets.make_friedman1(n_samples=int(name[len("friedman"):]), noise=1.0, random_state=7)
        names = ["x%d" % i for i in range(found[0].shape[1])]
        return names, found[0].tolist(), found[1].tolist(), False
    found = getattr(datasets, "load_" + name)()
    names = ["x%d" % i for i in range(found.data.shape[1])]
    rows = [[float(x) for x in row] for row in found.data]
    if damaged:
        edges = np.quantile(found.data[:, 0], [0.25, 0.5, 0.75])
        random = np.random.RandomState(0)
        for row in rows:
            row[0] = "abcd"[int(np.searchsorted(edges, row[0]))]
            for i in range(len(row)):
                if random.rand() < 0.05:
                    row[i] = None
    is_class = name != "diabetes"
    targets = ["class %d" % t for t in found.target] if is_class else [float(t) for t in found.target]
    return names, rows, targets, is_class


def run(arguments, **options):
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def test_rows(tutti, folder, count):
    """Returns the rows that Tutti holds out of a table of `count` rows, which depend on the count alone."""
    path = os.path.join(folder, "numbers.csv")
    with open(path, "w") as file:
        file.write("row\n" + "".join("%d\n" % i for i in range(count)))
    origin = json.loads(run([tutti, "data", "info", path, "--json"]))["origin"]
    with open(origin.split(", in ", 1)[1], "rb") as file:
        data = file.read()
    start = data.rindex(b'{"name":"numbers.csv"')  # the description is at the end (src/data/column_file.h)
    description = json.JSONDecoder().raw_decode(data[start:].decode("utf-8", "replace"))[0]
    offset = description["sections"][0][1]
    return [int(x) for x in struct.unpack_from("<%df" % description["test"], data, offset)]


def write_csv(path, names, rows, targets):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names + ["target"])
        for row, target in zip(rows, targets):
            writer.writerow(["" if x is None else x if isinstance(x, str) else repr(x) for x in row] +
                            [target if isinstance(target, str) else repr(target)])


def settings_of_tutti(arguments):
    if arguments.defaults:
        return ["--validation", "0"] if arguments.all_rows else []
    return ["--epochs", str(arguments.epochs), "--batch", str(BATCH), "--optimizer", "adam", "--rate", str(RATE),
            "--schedule", "constant", "--validation", "0", "--checkpoint-every", "1000000"]


def run_tutti(arguments, folder, names, rows, targets, seed):
    path, out = os.path.join(folder, "table.csv"), os.path.join(folder, "run-%d" % seed)
    write_csv(path, names, rows, targets)
    run([arguments.tutti, "train", "mlp", "--data", path, "--target", "target", "--base", str(WIDTH), "--threads", "1",
         "--devices", "cpu:0", "--seed", str(seed), "--quiet", "--out", out] + settings_of_tutti(arguments),
        stderr=subprocess.DEVNULL)
    return json.loads(run([arguments.tutti, "eval", out, "--json"]))


def features(rows):
    """Splits rows into numbers, with NaN for missing ones, and texts."""
    texts = [i for i in range(len(rows[0])) if any(isinstance(row[i], str) for row in rows)]
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for k, x in enumerate(row):
            table[i, k] = ("missing" if x is None else x) if k in texts else (np.nan if x is None else x)
    return table, [i for i in range(len(rows[0])) if i not in texts], texts


def settings_of_sklearn(arguments, count):
    if arguments.defaults:
        return {}
    return dict(alpha=0, batch_size=min(BATCH, count), learning_rate_init=RATE, max_iter=arguments.epochs, tol=0,
                n_iter_no_change=10 * arguments.epochs)


def run_sklearn(arguments, rows, targets, test, is_class, seed):
    table, numbers, texts = features(rows)
    held_out = set(test)
    train = [i for i in range(len(rows)) if i not in held_out]
    options = dict(hidden_layer_sizes=(WIDTH, WIDTH), random_state=seed, **settings_of_sklearn(arguments, len(train)))
    fill = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = ColumnTransformer([("numbers", fill, numbers),
                                 ("texts", OneHotEncoder(handle_unknown="ignore"), texts)], sparse_threshold=0)
    network = MLPClassifier(**options) if is_class else TransformedTargetRegressor(MLPRegressor(**options),
                                                                                   transformer=StandardScaler())
    model = make_pipeline(columns, network)
    wanted = np.array(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(table[train], wanted[train])
    predicted = model.predict(table[test])
    if is_class:
        return float(np.mean(predicted == wanted[test]))
    return float(np.sqrt(np.mean((predicted - wanted[test]) ** 2)))


def metric(evaluation, is_class):
    """Finds accuracy or RMSE in the output of tutti eval --json."""
    return evaluation["accuracy" if is_class else "rmse"]


def compare(arguments, name, damaged):
    names, rows, targets, is_class = load(name, damaged)
    ours, theirs = [], []
    for split in range(arguments.splits):
        seeds = range(split * arguments.seeds, (split + 1) * arguments.seeds)
        order = np.random.RandomState(split).permutation(len(rows))
        shuffled, wanted = [rows[i] for i in order], [targets[i] for i in order]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TUTTI_DATA"] = os.path.join(folder, "cache")
            test = test_rows(arguments.tutti, folder, len(rows))
            ours.append(statistics.mean(
                metric(run_tutti(arguments, folder, names, shuffled, wanted, seed), is_class) for seed in seeds))
        theirs.append(statistics.mean(run_sklearn(arguments, shuffled, wanted, test, is_class, seed) for seed in seeds))
    differences = [a - b for a, b in zip(ours, theirs)]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0
    a, b = statistics.mean(ours), statistics.mean(theirs)
    shown = ["%.2f%%" % (100 * x) if is_class else "%.4g" % x for x in (a, b)]
    length = "default" if arguments.defaults else arguments.epochs
    return "| %s%s | %s | %d | %s | %d | %s | %s | %+.2f%% | %.2f%% |" % (
        name, "*" if damaged else "", "accuracy" if is_class else "RMSE", len(rows), length, arguments.splits, *shown,
        100 * (a / b - 1), 100 * error / b)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="build/release/tutti")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", default="", help="sets, separated by commas, such as iris,diabetes*")
    parser.add_argument("--defaults", action="store_true", help="the default settings of both")
    parser.add_argument("--all-rows", action="store_true", help="with --defaults: Tutti keeps no rows for validation")
    arguments = parser.parse_args()
    only = [(name.rstrip("*"), name.endswith("*")) for name in arguments.only.split(",") if name]
    print("| set | metric | rows | epochs | splits | Tutti | scikit-learn | difference | standard error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, damaged in only or SETS:
        print(compare(arguments, name, damaged), flush=True)


if __name__ == "__main__":
    sys.exit(main())
