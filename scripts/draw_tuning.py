#!/usr/bin/env python3
"""Draws docs/tuning-predicted.svg and docs/tuning-speedup.svg from bench/results/tuned-*.json."""

import math

import svg
from results import geometric_mean, moved_bytes, tuned_shapes

COLOURS = {"sequential": "#888888", "signal": "#d98200", "copy": "#1f77d0", "store": "#2a9d4e", "p2p": "#a04fc0"}


def draw_predicted(rows):
    size, margin = 520, 60
    times = [row[key] for row in rows for key in ("overlap_us", "predicted_us")]
    least, most = 10 ** math.floor(math.log10(min(times))), max(times) * 1.3
    measured = svg.LogAxis(least, most, margin, size - margin)
    predicted = svg.LogAxis(least, most, size - margin, margin)
    marks = [(value, svg.short(value)) for value in measured.steps(10)]
    body = svg.grid(measured, predicted, marks, marks)
    body.append(svg.line([(margin, size - margin), (size - margin, margin)], 'class="axis"'))
    fabrics = sorted({row["fabric"] for row in rows})

    def style(colour, fabric):
        return (f'fill="{colour}" fill-opacity="0.7"' if fabric == fabrics[0]
                else f'fill="none" stroke="{colour}" stroke-width="1.5"')

    for row in rows:
        place = measured.place(row["overlap_us"]), predicted.place(row["predicted_us"])
        body.append(svg.circle(*place, 3, style(COLOURS[row["strategy"]], row["fabric"])))
    legend = [(strategy, style(colour, fabrics[0])) for strategy, colour in COLOURS.items()]
    legend += [(fabric, style("#888888", fabric)) for fabric in fabrics]
    for index, (words, mark) in enumerate(legend):
        y = margin + 14 + 18 * index
        body += [svg.circle(margin + 14, y - 4, 4, mark), svg.text(margin + 24, y, words, "start")]
    body += [svg.text(size / 2, size - 18, "measured, µs"), svg.upright(16, size / 2, "predicted, µs")]
    svg.write("docs/tuning-predicted.svg", f"Predicted and measured times of {len(rows)} runs", size, size, body)


CELL_WIDTH, CELL_HEIGHT = 64, 36
STEP = 4  # from each side of a cell to the other: work and bytes grow by this factor


def cell(x, y, speedups):
    """The mean of its shapes; of several also the least."""
    mean = geometric_mean(speedups)
    fill, words = svg.speedup_colour(mean)
    several = len(speedups) > 1
    body = [svg.rectangle(x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, f'fill="{fill}"'),
            svg.text(x + CELL_WIDTH / 2, y + (16 if several else 22), f"{mean:.2f}", more=f' class="{words}"')]
    if several:
        body.append(svg.text(x + CELL_WIDTH / 2, y + 29, f"{len(speedups)}, ≥ {min(speedups):.2f}",
                             more=f' class="small {words}"'))
    return body


def bins_of(row):
    work, moved = 2e-9 * row["m"] * row["n"] * row["k"], 1e-6 * moved_bytes(row)
    return math.floor(math.log(work, STEP)), math.floor(math.log(moved, STEP))


def panel(left, top, rows, columns, lines):
    """One operation on one fabric: GEMM work to the right, bytes upwards."""
    first = rows[0]
    speedups = [row["speedup"] for row in rows]
    head = (f'{first["op"]}, {first["ranks"]} GPUs, {first["fabric"]}: {len(rows)} shapes, '
            f'mean {geometric_mean(speedups):.2f} ({min(speedups):.2f} to {max(speedups):.2f})')
    right, bottom = left + len(columns) * CELL_WIDTH, top + len(lines) * CELL_HEIGHT
    work = svg.LogAxis(STEP ** columns[0], STEP ** (columns[-1] + 1), left, right)
    moved = svg.LogAxis(STEP ** lines[0], STEP ** (lines[-1] + 1), bottom, top)
    body = [svg.text((left + right) / 2, top - 8, head)]
    body += svg.grid(work, moved, [(value, f"{value:g}") for value in work.steps(STEP)],
                     [(value, f"{value:g}") for value in moved.steps(STEP)])
    cells = {}
    for row in rows:
        cells.setdefault(bins_of(row), []).append(row["speedup"])
    for (column, step), inside in cells.items():
        body += cell(work.place(STEP ** column), moved.place(STEP ** (step + 1)), inside)
    return body + [svg.text((left + right) / 2, bottom + 30, "work of the GEMM, billion operations"),
                   svg.upright(left - 40, (top + bottom) / 2, "matrix communicated, MB")]


def draw_speedups(rows):
    bins = [bins_of(row) for row in rows]
    columns, lines = (range(min(each), max(each) + 1) for each in zip(*bins))
    width, height = len(columns) * CELL_WIDTH + 80, len(lines) * CELL_HEIGHT + 80
    panels = {}
    for row in rows:
        panels.setdefault((row["fabric"], row["ranks"], row["op"]), []).append(row)
    body = []
    for index, (_, of_panel) in enumerate(sorted(panels.items())):
        body += panel(60 + index % 2 * width, 70 + index // 2 * height, of_panel, columns, lines)
    bottom = 50 + (len(panels) + 1) // 2 * height
    for index, speedup in enumerate((0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7, 2.0)):
        body += cell(60 + index * CELL_WIDTH, bottom, [speedup])
    body.append(svg.text(70 + 8 * CELL_WIDTH, bottom + 22,
                         "times as fast. A cell: mean of its shapes; below, how many, and the least", "start"))
    svg.write("docs/tuning-speedup.svg", "Speed-up of the tuned schedule over cuBLASLt, then NCCL", 2 * width,
              bottom + 50, body)


def main():
    rows = [row for shape in tuned_shapes() for row in shape]
    draw_predicted(rows)
    draw_speedups([row for row in rows if row["tuned"]])


if __name__ == "__main__":
    main()
