#!/usr/bin/env python3
"""Draws one run of a trace: a row for the kernels and a row for the copies of every device.

    tutti bench branches --devices cpu:0/2 --threads 1 --trace trace.json
    tools/trace_svg.py trace.json > trace.svg            # the shortest run
    tools/trace_svg.py trace.json --run 3 --width 900

Reads the trace event format that `--trace` writes; needs only Python."""
import argparse
import html
import json
import sys

COLOURS = {"kernel": "#4c78a8", "copy": "#f58518", "wait": "#d7d7d7", "feed": "#72b7b2", "fetch": "#72b7b2",
           "update": "#b279a2", "collective": "#e45756"}
NAMES = {"kernel": "kernels", "copy": "copies between devices", "collective": "collectives", "wait": "waiting",
         "feed": "inputs and results", "update": "updates"}
ROW, GAP, LEFT, TOP, BOTTOM = 26, 8, 128, 40, 46


def read(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return rows, [e for e in events if e["ph"] == "X"]


def choose_run(spans, wanted):
    runs = {(e["pid"], e["args"]["run"]): e for e in spans if e["cat"] == "run"}
    if not runs:
        sys.exit("trace_svg: the trace contains no run")
    if wanted is None:
        return min(runs, key=lambda run: runs[run]["dur"]), runs
    found = [run for run in runs if run[1] == wanted]
    if not found:
        sys.exit(f"trace_svg: there is no run {wanted}: expected 1 to {max(run[1] for run in runs)}")
    return found[0], runs


def tick(span):
    """Returns a round time step that divides the span into about eight."""
    step = 10.0 ** -3
    while step * 8 < span:
        for factor in (2, 2.5, 2):
            if step * 8 < span:
                step *= factor
    return step


def time_text(us, step):
    if step >= 1000:
        return f"{us / 1000:g} ms"
    return f"{us / 1000:g} ms" if us >= 1000 else f"{us:g} µs"


def draw(rows, spans, run, runs, width):
    start, span = runs[run]["ts"], runs[run]["dur"]
    shown = [e for e in spans if e["pid"] == run[0] and e["args"]["run"] == run[1] and e["cat"] != "run"]
    used = [row for row in rows if row[0] == run[0] and any(e["tid"] == row[1] for e in shown)]
    scale = (width - LEFT - 16) / span
    height = TOP + len(used) * (ROW + GAP) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    bottom = TOP + len(used) * (ROW + GAP)
    step = tick(span)
    for i in range(int(span / step) + 1):
        x = LEFT + i * step * scale
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#eeeeee"/>'
                   f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle" fill="#666666" font-size="10">'
                   f'{time_text(round(i * step, 6), step)}</text>')
    for place, row in enumerate(used):
        y = TOP + place * (ROW + GAP)
        out.append(f'<text x="{LEFT - 10}" y="{y + ROW / 2 + 4}" text-anchor="end" fill="#222222">'
                   f'{html.escape(rows[row])}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{span * scale:.1f}" height="{ROW}" fill="#f7f7f7"/>')
        for e in shown:
            if e["tid"] == row[1]:
                out.append(box(e, LEFT + (e["ts"] - start) * scale, y, e["dur"] * scale))
    out.append(legend(shown, height))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def box(e, x, y, width):
    what = e["name"] + (f" ({e['args']['operation']})" if "operation" in e["args"] else "")
    title = html.escape(f"{what}: {e['dur']:.1f} µs")
    drawn = max(width, 0.6)
    edge = ' stroke="white" stroke-width="0.5"' if drawn > 3 else ""
    text = f'<g><title>{title}</title><rect x="{x:.2f}" y="{y}" width="{drawn:.2f}" height="{ROW}" ' \
           f'fill="{COLOURS[e["cat"]]}"{edge}/>'
    room = int((width - 8) / 6)
    if room >= 4:
        label = e["name"] if len(e["name"]) <= room else e["name"][:room - 1] + "…"
        colour = "#555555" if e["cat"] == "wait" else "white"
        text += f'<text x="{x + 4:.2f}" y="{y + ROW / 2 + 4}" fill="{colour}" font-size="10">{html.escape(label)}</text>'
    return text + "</g>"


def legend(shown, height):
    there = {"feed" if e["cat"] == "fetch" else e["cat"] for e in shown}
    x, parts = LEFT, []
    for kind, name in NAMES.items():
        if kind not in there:
            continue
        parts.append(f'<rect x="{x}" y="{height - 28}" width="12" height="12" fill="{COLOURS[kind]}"/>'
                     f'<text x="{x + 18}" y="{height - 18}" fill="#444444">{name}</text>')
        x += 34 + 7 * len(name)
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--run", type=int, help="number of the run (default: the shortest)")
    parser.add_argument("--width", type=int, default=1000, help="width of the picture in pixels")
    given = parser.parse_args()
    rows, spans = read(given.trace)
    run, runs = choose_run(spans, given.run)
    sys.stdout.write(draw(rows, spans, run, runs, given.width))


if __name__ == "__main__":
    main()
