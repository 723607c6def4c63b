#!/usr/bin/env python3
"""Draws how devices share a batch, one picture per strategy: rows are devices, time goes to the right.

    tools/strategies_svg.py docs/images        # writes mirrored.svg, central.svg and ensemble.svg there

The lengths are not measured; `tutti bench … --trace FILE` and tools/trace_svg.py draw measured times. Needs only Python."""
import html
import pathlib
import sys

ROW, GAP, LEFT, TOP, UNIT, BOTTOM = 30, 10, 92, 34, 26, 40
COLOURS = {"compute": "#4c78a8", "copy": "#f58518", "collective": "#e45756", "update": "#b279a2", "data": "#72b7b2",
           "wait": "#e3e3e3"}
NAMES = {"data": "the device's shard of the batch", "compute": "computing", "copy": "copies between devices",
         "collective": "collectives: gradients are summed", "update": "updates", "wait": "waiting"}

# A row is a device's name and its boxes: kind, start, length, label. The second row of a device has no name.
MIRRORED = ("mirrored: a step on two devices", [
    ("gpu:0", [("data", 0, 2, "shard 1"), ("compute", 2, 6, "forward"), ("compute", 8, 10, "backward"),
               ("update", 21, 3, "update")]),
    ("", [("collective", 11, 3, "bucket 1"), ("collective", 14.5, 3, "bucket 2"), ("collective", 18, 3, "bucket 3")]),
    ("gpu:1", [("data", 0, 2, "shard 2"), ("compute", 2, 6, "forward"), ("compute", 8, 10, "backward"),
               ("update", 21, 3, "update")]),
    ("", [("collective", 11, 3, "bucket 1"), ("collective", 14.5, 3, "bucket 2"), ("collective", 18, 3, "bucket 3")]),
])
CENTRAL = ("central: the seven phases of a step", [
    ("cpu:0", [("copy", 0, 3, "1 send"), ("wait", 3, 16.5, "5 wait for all"), ("compute", 19.5, 3, "6 sum"),
               ("update", 22.5, 3, "7 update")]),
    ("gpu:0", [("data", 0, 3, "2 shard 1"), ("compute", 3, 5, "3 forward"), ("compute", 8, 8, "4 backward"),
               ("copy", 16, 2.5, "back")]),
    ("gpu:1", [("data", 0, 3, "2 shard 2"), ("compute", 3, 5.5, "3 forward"), ("compute", 8.5, 8.5, "4 backward"),
               ("copy", 17, 2.5, "back")]),
])
ENSEMBLE = ("ensemble: independent networks, no step waits for another device", [
    ("gpu:0", [("compute", 0, 11, "member 0: all its steps"), ("compute", 11.2, 11, "member 2: all its steps")]),
    ("gpu:1", [("compute", 0, 12, "member 1: all its steps"), ("compute", 12.2, 12, "member 3: all its steps")]),
])


def draw(title, rows):
    end = max(start + length for _, boxes in rows for _, start, length, _ in boxes)
    width, height = int(LEFT + end * UNIT + 16), TOP + len(rows) * (ROW + GAP) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" fill="#222222" font-size="14">{html.escape(title)}</text>']
    y = TOP
    for name, boxes in rows:
        out.append(f'<text x="{LEFT - 12}" y="{y + ROW / 2 + 4}" text-anchor="end" fill="#222222">{html.escape(name)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{end * UNIT:.0f}" height="{ROW}" fill="#f7f7f7"/>')
        out += [box(y, *each) for each in boxes]
        y += ROW + GAP
    out.append(legend({kind for _, boxes in rows for kind, _, _, _ in boxes}, height))
    return "\n".join(out + ["</svg>", ""])


def box(y, kind, start, length, label):
    colour = "#555555" if kind == "wait" else "white"
    return (f'<rect x="{LEFT + start * UNIT:.1f}" y="{y}" width="{length * UNIT - 2:.1f}" height="{ROW}" rx="3" '
            f'fill="{COLOURS[kind]}"/><text x="{LEFT + (start + length / 2) * UNIT - 1:.1f}" y="{y + ROW / 2 + 4}" '
            f'text-anchor="middle" fill="{colour}" font-size="11">{html.escape(label)}</text>')


def legend(kinds, height):
    x, parts = LEFT, []
    for kind, name in NAMES.items():
        if kind in kinds:
            parts.append(f'<rect x="{x}" y="{height - 26}" width="12" height="12" fill="{COLOURS[kind]}"/>'
                         f'<text x="{x + 17}" y="{height - 16}" fill="#444444" font-size="11">{name}</text>')
            x += 30 + 6 * len(name)
    return "".join(parts)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: strategies_svg.py FOLDER")
    for name, picture in (("mirrored", MIRRORED), ("central", CENTRAL), ("ensemble", ENSEMBLE)):
        (pathlib.Path(sys.argv[1]) / f"{name}.svg").write_text(draw(*picture), encoding="utf-8")


if __name__ == "__main__":
    main()
