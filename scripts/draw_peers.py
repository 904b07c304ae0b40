#!/usr/bin/env python3
"""Draws docs/peers.svg: shares of the bound of this library and of others, measured in one process."""

import glob
import os

import svg
from results import geometric_mean, read

LIBRARIES = {
    "flashoverlap": ("FlashOverlap", "#1f77d0"),
    "nccl": ("cuBLAS + NCCL", "#888888"),
    "async_tp": ("PyTorch async-TP", "#d98200"),
    "one_shot": ("cuBLAS + one-shot", "#b0a000"),
    "two_shot": ("cuBLAS + two-shot", "#7a9a01"),
    "kraken": ("Kraken", "#b0399a"),
    "quack": ("QuACK", "#c0392b"),
    "cublasmp": ("cuBLASMp", "#2a9d8f"),
}
LEFT, WIDTH, BAR = 150, 560, 20


def newest():
    """The last file of each operation and number of GPUs with the listed shapes that says what GEMM and collective
    take alone."""
    files = [read(path) for path in glob.glob(os.path.join(svg.ROOT, "bench/results/peers-*.json"))]
    found = {}
    for file in sorted(files, key=lambda each: each["machine"]["date"]):
        if any(option in file["machine"]["command"] for option in ("--shapes", "--random")):
            continue
        rows = [row for row in file["rows"] if "alone_us" in row]
        if rows:
            found[rows[0]["op"], file["machine"]["gpus"], file["machine"]["gpu"]] = rows
    return found


def shares(rows):
    """max(GEMM alone, collective alone) / time, of each shape, by library."""
    found = {}
    for row in rows:
        for library, time in row["times_us"].items():
            found.setdefault(library, []).append(max(row["alone_us"].values()) / time)
    return {library: found[library] for library in LIBRARIES if library in found}


def main():
    groups = {f"{operation}, {gpus} x {gpu}": shares(rows) for (operation, gpus, gpu), rows in newest().items()}
    most = 1.1
    height = 60 + sum(len(group) * BAR + 36 for group in groups.values()) + 40

    def place(share):
        return LEFT + share / most * WIDTH

    body = []
    for tenths in range(0, 11, 2):
        x = place(tenths / 10)
        style = "axis" if tenths in (0, 10) else "grid"
        body.append(svg.line([(x, 40), (x, height - 50)], f'class="{style}"'))
        body.append(svg.text(x, height - 34, f"{tenths / 10:g}", more=' class="small"'))
    top = 60
    for words, group in groups.items():
        body.append(svg.text(LEFT, top, words, "start", ' class="head"'))
        for index, (library, values) in enumerate(group.items()):
            y, mean = top + 8 + index * BAR, geometric_mean(values)
            name, colour = LIBRARIES[library]
            style = f'fill="{colour}"'
            body.append(svg.text(LEFT - 12, y + BAR / 2 + 4, name, "end"))
            body.append(svg.rectangle(LEFT, y + 1, place(mean) - LEFT, BAR - 2, f'{style} fill-opacity="0.45"'))
            body += [svg.circle(place(value), y + BAR / 2, 2.5, style) for value in values]
            body.append(svg.text(place(most) + 12, y + BAR / 2 + 4, f"{mean:.2f}", "start"))
        top += len(group) * BAR + 36
    body.append(svg.text(LEFT + WIDTH / 2, height - 12,
                         "max(GEMM, NCCL) / time, all in turns: bar and number are the mean, each dot is a shape"))
    svg.write("docs/peers.svg", "Share of the bound", LEFT + WIDTH + 60, height, body)


if __name__ == "__main__":
    main()
