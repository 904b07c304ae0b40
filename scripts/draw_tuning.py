#!/usr/bin/env python3
"""Draws docs/tuning-predicted.svg and docs/tuning-speedup.svg from bench/results/tuned-*.json."""

import glob
import json
import math
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLOURS = {"sequential": "#888888", "signal": "#d98200", "copy": "#1f77d0", "store": "#2a9d4e", "p2p": "#a04fc0"}
STYLE = ("<style>text{font:12px sans-serif;fill:#222}.axis{stroke:#888;stroke-width:1;fill:none}"
         ".grid{stroke:#8884;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>")


def rows():
    """Every row once: the tuned one of a shape is measured next to the methods."""
    for path in sorted(glob.glob(os.path.join(ROOT, "bench/results/tuned-*.json"))):
        with open(path, encoding="utf-8") as file:
            yield from json.load(file)["rows"]


def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}">{STYLE}{"".join(body)}</svg>\n')


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'


def predicted_against_measured(all_rows):
    size, margin = 520, 60
    least, most = 10, 30000

    def place(us):
        return (math.log(us) - math.log(least)) / (math.log(most) - math.log(least)) * (size - 2 * margin)

    body = []
    for power in (10, 100, 1000, 10000):
        at = place(power)
        body.append(f'<path class="grid" d="M{margin + at:.1f} {margin}V{size - margin}M{margin} '
                    f'{size - margin - at:.1f}H{size - margin}"/>')
        body.append(text(margin + at, size - margin + 18, f"{power:,} us"))
        body.append(text(margin - 6, size - margin - at + 4, f"{power:,}", "end"))
    body.append(f'<path class="axis" d="M{margin} {margin}V{size - margin}H{size - margin}M{margin} '
                f'{size - margin}L{size - margin} {margin}"/>')
    for row in all_rows:
        x, y = margin + place(row["overlap_us"]), size - margin - place(row["predicted_us"])
        colour = COLOURS[row["strategy"]]
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7"/>')
    for index, (strategy, colour) in enumerate(COLOURS.items()):
        y = margin + 14 + 18 * index
        body.append(f'<circle cx="{margin + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        body.append(text(margin + 24, y, strategy, "start"))
    body.append(text(size / 2, size - 14, "measured"))
    body.append(text(16, size / 2, "predicted", more=f' transform="rotate(-90 16 {size / 2})"'))
    body.append(text(size / 2, 30, "Predicted and measured times, 2 H200, NVLink"))
    return svg(size, size, body)


def speed_ups(all_rows):
    """One line for each operation, one mark for each shape."""
    tuned = [row for row in all_rows if row.get("tuned")]
    operations = sorted({row["op"] for row in tuned})
    width, line, left = 720, 70, 170
    height = 70 + line * len(operations)
    least, most = 0.7, 2.0

    def place(value):
        value = min(max(value, least), most)
        return left + (value - least) / (most - least) * (width - left - 30)

    body = [text(width / 2, 24, "Tuned against cuBLASLt, then NCCL: speed-up by shape, larger dots take longer")]
    for mark in (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0):
        style = "axis" if mark == 1.0 else "grid"
        body.append(f'<path class="{style}" d="M{place(mark):.1f} 40V{height - 30}"/>')
        body.append(text(place(mark), height - 12, f"{mark:.1f}"))
    for index, operation in enumerate(operations):
        y = 40 + line * index + line / 2
        body.append(text(left - 10, y + 4, operation, "end"))
        for number, row in enumerate(row for row in tuned if row["op"] == operation):
            radius = 2 + max(0.0, math.log10(row["overlap_us"]) - 1) * 1.5
            body.append(f'<circle cx="{place(row["speedup"]):.1f}" cy="{y - 20 + number * 17 % 41:.1f}" '
                        f'r="{radius:.1f}" fill="{COLOURS[row["strategy"]]}" fill-opacity="0.7"/>')
    return svg(width, height, body)


def main():
    all_rows = list(rows())
    for name, picture in (("predicted", predicted_against_measured(all_rows)), ("speedup", speed_ups(all_rows))):
        with open(os.path.join(ROOT, f"docs/tuning-{name}.svg"), "w", encoding="utf-8") as file:
            file.write(picture)


if __name__ == "__main__":
    main()
