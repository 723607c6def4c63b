#!/usr/bin/env python3
"""Checks files written by Tutti with the safetensors and tensorboard packages.

    tests/data/check_formats.py RUN_FOLDER          # its checkpoints and event files
    tests/data/check_formats.py FILE.safetensors    # one file
    tests/data/check_formats.py events.out.tfevents.…

safetensors files are loaded with the package `safetensors` and compared, bit by bit, with arrays parsed by this
script. Event files are read with TensorBoard's EventAccumulator; the script checks every value and prints the tags
of scalars, images and histograms and the size of the graph. Exit status: 0 if all files are valid; 1 if not, or if
there was nothing to check; 2 if a Python package is missing (numpy, safetensors, tensorboard)."""
import glob
import json
import os
import struct
import sys

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


def fail(message):
    print("FAILED: " + message, file=sys.stderr)
    sys.exit(1)


def parse_safetensors(path):
    """Parses the file without the package. Returns {name: (type, array)} and the metadata. BF16 is returned as u2."""
    import numpy

    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    if length % 8 != 0:
        fail("%s: the header has %d bytes, so the tensors are not aligned to 8 bytes" % (path, length))
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[8 + length + begin : 8 + length + end], dtype=TYPES[entry["dtype"]])
        tensors[name] = entry["dtype"], array.reshape(entry["shape"])
    return tensors, metadata


def check_safetensors(path):
    import numpy
    import safetensors

    expected, metadata = parse_safetensors(path)
    parameters = 0
    with safetensors.safe_open(path, framework="numpy") as file:
        if set(file.keys()) != set(expected):
            fail("%s: safetensors reads the tensors %s, expected %s" % (path, sorted(file.keys()), sorted(expected)))
        if (file.metadata() or {}) != metadata:
            fail("%s: safetensors reads the metadata %s, expected %s" % (path, file.metadata(), metadata))
        for name, (kind, array) in expected.items():
            parameters += array.size
            if kind == "BF16":  # NumPy has no such type
                continue
            loaded = file.get_tensor(name)
            if loaded.shape != array.shape or loaded.dtype != array.dtype:
                fail("%s: '%s' is %s %s, expected %s %s" % (path, name, loaded.dtype, loaded.shape, array.dtype, array.shape))
            if loaded.tobytes() != array.tobytes():
                fail("%s: '%s' differs" % (path, name))
            if array.dtype.kind == "f" and not numpy.isfinite(array).all():
                print("note: %s: '%s' has non-finite elements" % (path, name))
    print("%s: %d tensors, %d elements, metadata %s: valid" % (path, len(expected), parameters, metadata))


def check_events(paths):
    """Checks one event file, or all event files of one folder, which TensorBoard reads together."""
    from tensorboard.backend.event_processing import event_accumulator

    where = os.path.dirname(paths[0]) if len(paths) > 1 else paths[0]
    keep_all = {event_accumulator.SCALARS: 0, event_accumulator.IMAGES: 0, event_accumulator.HISTOGRAMS: 0,
                  event_accumulator.TENSORS: 0}
    events = event_accumulator.EventAccumulator(where, size_guidance=keep_all)
    events.Reload()
    tags = events.Tags()
    for tag in tags["scalars"]:
        steps = [e.step for e in events.Scalars(tag)]
        if steps != sorted(set(steps)):
            fail("%s: the steps of '%s' do not increase: a resumed run must purge old events" % (where, tag))
        print("scalar %s: %d values, the last %g at step %d" % (tag, len(steps), events.Scalars(tag)[-1].value, steps[-1]))
    for tag in tags["images"]:
        for image in events.Images(tag):
            if not image.encoded_image_string.startswith(b"\x89PNG\r\n\x1a\n") or image.width <= 0 or image.height <= 0:
                fail("%s: an image of '%s' is not a PNG" % (where, tag))
        print("image %s: %d, %dx%d" % (tag, len(events.Images(tag)), events.Images(tag)[-1].width, events.Images(tag)[-1].height))
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            h = event.histogram_value
            if abs(sum(h.bucket) - h.num) > 1e-6 * max(1, h.num) or list(h.bucket_limit) != sorted(h.bucket_limit):
                fail("%s: a histogram of '%s' has buckets that do not add up or are not sorted" % (where, tag))
        print("histogram %s: %d, of %g numbers" % (tag, len(events.Histograms(tag)), h.num))
    if tags["graph"]:
        nodes = events.Graph().node
        names = {node.name for node in nodes}
        for node in nodes:
            for source in node.input:
                if source.split(":")[0] not in names:
                    fail("%s: '%s' reads '%s', which is not in the graph" % (where, node.name, source))
        print("graph: %d nodes" % len(nodes))
    if not tags["scalars"]:
        fail("%s: TensorBoard reads no scalar" % where)


def main(argument):
    if os.path.isdir(argument):
        checkpoints = sorted(glob.glob(os.path.join(argument, "**", "*.safetensors"), recursive=True))
        events = sorted(glob.glob(os.path.join(argument, "events.out.tfevents.*")))
    else:
        checkpoints = [argument] if argument.endswith(".safetensors") else []
        events = [] if checkpoints else [argument]
    if not checkpoints and not events:
        fail("%s: neither *.safetensors nor events.out.tfevents.*" % argument)
    for path in checkpoints:
        check_safetensors(path)
    if events:
        check_events(events)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        main(sys.argv[1])
    except ModuleNotFoundError as missing:
        print("missing: " + str(missing), file=sys.stderr)
        sys.exit(2)
