#!/usr/bin/env python3
"""Draws the curves of a machine file, as `flashoverlap tune machine --save` writes it.

    scripts/draw_machine.py MACHINE.json CURVES.svg

Without arguments it draws docs/machine-curves.svg.
"""

import os
import sys

import svg
from results import read

DRAWN = ("bench/results/machine-2xh200-nvlink-2026-11-30.json", "docs/machine-curves.svg")
TRANSPORTS = {"all_reduce": "#d98200", "reduce_scatter": "#1f77d0", "all_gather": "#2a9d4e", "exchange": "#a04fc0",
              "copy engine": "#c0392b", "store": "#888888"}
PALETTE = ("#c0392b", "#d98200", "#a89a00", "#2a9d4e", "#12999a", "#1f77d0", "#5a5fd8", "#a04fc0", "#888888")
WIDTH, HEIGHT = 400, 260
DOTTED = ' stroke-dasharray="2 3"'


class Series:
    def __init__(self, name, colour, points, more=""):
        self.name, self.colour, self.more = name, colour, more
        self.points = [(point["size"], point["microseconds"]) for point in points]


def of_most_ranks(curves):
    """The largest world size of curves by the number of ranks, and its points."""
    ranks = max(curves, key=int, default="no")
    return ranks, curves.get(ranks, [])


def panel(left, top, title, across, series):
    """Time against bytes or k, both on logarithmic axes."""
    in_words = binary if across.startswith("bytes") else "{:g}".format
    series = [each for each in series if each.points]
    sizes, times = zip(*(point for each in series for point in each.points))
    right, bottom = left + WIDTH, top + HEIGHT
    horizontal = svg.LogAxis(min(sizes), 1.01 * max(sizes), left, right)
    vertical = svg.LogAxis(min(times) / 1.2, max(times) * 1.2, bottom, top)
    body = [svg.text((left + right) / 2, top - 8, title)]
    body += svg.grid(horizontal, vertical, [(size, in_words(size)) for size in horizontal.steps(4)],
                     [(digit * time, svg.short(digit * time)) for time in vertical.steps(10, beyond=1)
                      for digit in (1, 2, 5) if vertical.least <= digit * time <= vertical.most])
    for index, each in enumerate(series):
        style = f'fill="none" stroke="{each.colour}" stroke-width="1.6"{each.more}'
        places = [(horizontal.place(size), vertical.place(time)) for size, time in each.points]
        body.append(svg.line(places, style))
        body += [svg.circle(*place, 2, f'fill="{each.colour}"') for place in places]
        if each.name:
            y = top + 14 + 14 * index
            body.append(svg.line([(left + 8, y - 4), (left + 26, y - 4)], style))
            body.append(svg.text(left + 32, y, each.name, "start", ' class="small"'))
    return body + [svg.text((left + right) / 2, bottom + 30, across), svg.upright(left - 36, top + HEIGHT / 2, "µs")]


def binary(size):
    for factor, unit in ((2 ** 20, "Mi"), (2 ** 10, "Ki")):
        if size >= factor:
            return f"{size / factor:g}{unit}"
    return f"{size:g}"


def alone(machine):
    curves = {**machine["collectives"], "copy engine": machine["copy_engine"], "store": machine["store"]}
    series = []
    for name, by_ranks in curves.items():
        ranks, points = of_most_ranks(by_ranks)
        series.append(Series(f"{name}, {ranks} ranks", TRANSPORTS[name], points))
    return series


def next_to_a_gemm(machine, kind):
    """For each cap on multiprocessors, after the collective alone."""
    series = [Series("alone", "#888888", of_most_ranks(machine["collectives"][kind])[1], ' stroke-dasharray="5 3"')]
    for colour, (cap, curves) in zip(PALETTE[1::2], machine["during_gemm"].items()):
        series.append(Series(f"{cap} multiprocessors", colour, of_most_ranks(curves.get(kind, {}))[1]))
    for colour, curves in zip(PALETTE[1::2], machine["during_gemm_for_callers"].values()):
        if kind in curves:
            series.append(Series("", colour, of_most_ranks(curves[kind])[1], DOTTED))
    return series


def kernels(machine):
    """Of some tiles, from the largest to the smallest, with the largest clusters. Dotted without a name where the rows
    of B are contiguous."""
    by_size = sorted(machine["kernels"], key=lambda each: (-each["tile_rows"] * each["tile_cols"], each["cluster_rows"]))
    tiles = list({(each["tile_rows"], each["tile_cols"]): each["cluster_rows"] for each in by_size}.items())
    count = min(len(tiles), len(PALETTE))
    series = []
    for place, colour in zip(range(count), PALETTE):
        (rows, cols), cluster = tiles[place * (len(tiles) - 1) // max(1, count - 1)]
        for kernel in by_size:
            if (kernel["tile_rows"], kernel["tile_cols"], kernel["cluster_rows"]) != (rows, cols, cluster):
                continue
            is_plain = kernel["b_layout"] == "k_contiguous"
            series.append(Series(f"{rows}x{cols}" if is_plain else "", colour, kernel["wave"],
                                 "" if is_plain else DOTTED))
    return sorted(series, key=lambda each: not each.name)


def panels(machine):
    yield "alone: a whole collective, or one copy", "bytes", alone(machine)
    if machine["kernels"]:
        yield "one wave of tiles, dotted: rows of B contiguous", "k", kernels(machine)
    for kind in machine["collectives"]:
        if any(kind in curves for curves in machine["during_gemm"].values()):
            for_callers = any(kind in curves for curves in machine["during_gemm_for_callers"].values())
            title = f"{kind}, next to a GEMM" + (", dotted: results of callers" if for_callers else "")
            yield title, "bytes of the full matrix", next_to_a_gemm(machine, kind)


def main():
    if len(sys.argv) not in (1, 3):
        sys.exit(__doc__)
    source, picture = (os.path.abspath(path) for path in sys.argv[1:]) if len(sys.argv) == 3 else DRAWN
    machine = read(source)
    body = []
    drawn = list(panels(machine))
    for index, (title, across, series) in enumerate(drawn):
        body += panel(60 + index % 2 * (WIDTH + 70), 64 + index // 2 * (HEIGHT + 76), title, across, series)
    height = 64 + (len(drawn) + 1) // 2 * (HEIGHT + 76) - 30
    svg.write(picture, machine["name"], min(2, len(drawn)) * (WIDTH + 70) + 10, height, body)


if __name__ == "__main__":
    main()
