#!/usr/bin/env python3
"""Draws the recording of a terminal as a self-contained SVG, for the README.

    script -qec ./quickstart build/recorded
    tools/record_terminal.py --title ./quickstart --omit 'confusion matrix' '$ ' < build/recorded \\
        > docs/images/quickstart.svg

The input is a terminal's output as `script` records it. Of a line that was overwritten (carriage return, "erase to the end of
the line") the last state is drawn; other control sequences are removed. Lines that begin with "$ " are highlighted as commands.
The picture loads nothing: it uses the reader's monospaced font, its colours follow the reader's theme, and every line has a
fixed width, so that it looks the same with any font.
"""
import argparse
import html
import re
import sys

CHARACTER, LINE, MARGIN, BAR = 7.8, 18, 16, 34  # pixels: character width, line height, margin, title bar

STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de; }
  .bar { fill: #f6f8fa; }
  text { fill: #1f2328; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
  .title { fill: #59636e; text-anchor: middle; }
  .command { fill: #0550ae; font-weight: 600; }
  .dot { fill: #d0d7de; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d; }
    .bar { fill: #161b22; }
    text { fill: #e6edf3; }
    .title { fill: #8b949e; }
    .command { fill: #79c0ff; }
    .dot { fill: #30363d; }
  }
"""


def last_state(line):
    """Returns the last state of a line that was overwritten several times."""
    shown = ""
    for part in line.rstrip("\r").split("\r"):
        erases = "\033[K" in part
        part = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", part)
        part = "".join(c for c in part if c >= " ")
        shown = part if erases else part + shown[len(part):]
    return shown.rstrip()


def lines_of(stream):
    """Returns the lines of a recording, without those that `script` adds at the start and end."""
    lines = [last_state(line) for line in stream.split("\n")]
    lines = [line for line in lines if not line.startswith(("Script started on", "Script done on"))]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def omit(lines, first, last):
    """Replaces the lines from one that begins with `first` up to the next that begins with `last` by dots."""
    kept, inside = [], False
    for line in lines:
        if inside and line.startswith(last):
            kept.append("")
            inside = False
        elif not inside and line.startswith(first):
            kept.append("…")
            inside = True
        if not inside:
            kept.append(line)
    return kept


def draw(lines, title, columns):
    width = 2 * MARGIN + columns * CHARACTER
    height = BAR + 2 * MARGIN + len(lines) * LINE - (LINE - 13)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
           f'role="img" aria-label="{html.escape(title)}">')
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>'
    yield f'<path class="bar" d="M1 {BAR}V9a8 8 0 0 1 8-8h{width - 18:.0f}a8 8 0 0 1 8 8v{BAR - 9}z"/>'
    for i in range(3):
        yield f'<circle class="dot" cx="{20 + 18 * i}" cy="{BAR / 2:.0f}" r="5.5"/>'
    yield f'<text class="title" x="{width / 2:.0f}" y="{BAR / 2 + 4:.0f}">{html.escape(title)}</text>'
    for i, line in enumerate(lines):
        if not line:
            continue
        line = line if len(line) <= columns else line[:columns - 1] + "…"
        kind = ' class="command"' if line.startswith("$ ") else ""
        yield (f'<text{kind} xml:space="preserve" x="{MARGIN}" y="{BAR + MARGIN + 12 + i * LINE}" '
               f'textLength="{len(line) * CHARACTER:.1f}">{html.escape(line)}</text>')
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description="Draws a terminal's recording (standard input) as an SVG.")
    parser.add_argument("--title", default="terminal", help="text of the title bar")
    parser.add_argument("--columns", type=int, default=100, help="width; longer lines are cut")
    parser.add_argument("--omit", nargs=2, action="append", default=[], metavar=("FIRST", "LAST"),
                        help="leave out the lines from one that begins with FIRST up to the next that begins with LAST")
    options = parser.parse_args()
    lines = lines_of(sys.stdin.buffer.read().decode("utf-8", "replace"))
    if not lines:
        sys.exit("record_terminal.py: the recording has no lines: expected the output of `script`")
    for first, last in options.omit:
        lines = omit(lines, first, last)
    print("\n".join(draw(lines, options.title, options.columns)))


if __name__ == "__main__":
    main()
