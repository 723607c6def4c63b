#!/usr/bin/env python3
"""Prints the tables of src/data/unicode_classes.c from Python's copy of the Unicode character database."""

import unicodedata


def ranges(category):
    """Returns the ranges of code points whose general category starts with a letter."""
    found = []
    for c in range(0x110000):
        if unicodedata.category(chr(c))[0] != category:
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def main():
    print(f"/* Unicode {unicodedata.unidata_version} */")
    for name, category in (("letters", "L"), ("numbers", "N")):
        line = "   "
        print(f"static const range {name}[] = {{")
        for first, last in ranges(category):
            entry = f" {{0x{first:x}, 0x{last:x}}},"
            if len(line) + len(entry) > 108:
                print(line)
                line = "   "
            line += entry
        print(f"{line}\n}};")


if __name__ == "__main__":
    main()
