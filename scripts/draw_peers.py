#!/usr/bin/env python3
"""Draws docs/peers.svg: shares of the bound of this library and of PyTorch's, from bench/results."""

import glob
import os
import re

import svg
from results import geometric_mean, read

PEERS = {"torch_async_tp": "PyTorch async-TP"}
OURS = "FlashOverlap"
COLOURS = {OURS: "#1f77d0", "PyTorch async-TP": "#d98200"}
LEFT, WIDTH, BAR = 210, 560, 20


def shares(path):
    """max(GEMM alone, collective alone) / time, with the fastest strategy of each shape."""
    best = {}
    for row in read(path)["rows"]:
        shape = row["m"], row["n"], row["k"]
        best[shape] = max(best.get(shape, 0), max(row["gemm_us"], row["comm_us"]) / row["overlap_us"])
    return best


def compared():
    """For each run of a peer: what was run, and the shares of ours of that day and the peer's, by library."""
    names = "|".join(PEERS)
    pattern = re.compile(rf"(\w+)-(\d+)(x\w+)-({names})-(\d{{4}}-\d\d-\d\d)\.json")
    for path in sorted(glob.glob(os.path.join(svg.ROOT, "bench/results/*.json"))):
        found = pattern.fullmatch(os.path.basename(path))
        if not found:
            continue
        operation, gpus, model, peer, date = found.groups()
        ours = shares(f"bench/results/{operation}-{gpus}{model}-nvlink-{date}.json")
        theirs = shares(path)
        common = sorted(ours.keys() & theirs.keys())
        by_library = {OURS: ours, PEERS[peer]: theirs}
        yield (f"{operation}, {gpus} GPUs",
               {library: [each[shape] for shape in common] for library, each in by_library.items()})


def main():
    groups = list(compared())
    most = 1.1
    height = 60 + len(groups) * (2 * BAR + 22) + 50

    def place(share):
        return LEFT + share / most * WIDTH

    body = []
    for tenths in range(0, 11, 2):
        x = place(tenths / 10)
        style = "axis" if tenths in (0, 10) else "grid"
        body.append(svg.line([(x, 50), (x, height - 50)], f'class="{style}"'))
        body.append(svg.text(x, height - 34, f"{tenths / 10:g}", more=' class="small"'))
    for group, (words, by_library) in enumerate(groups):
        top = 60 + group * (2 * BAR + 22)
        body.append(svg.text(LEFT - 12, top + BAR + 4, words, "end"))
        for index, (library, values) in enumerate(by_library.items()):
            y, mean = top + index * BAR, geometric_mean(values)
            style = f'fill="{COLOURS[library]}"'
            body.append(svg.rectangle(LEFT, y + 1, place(mean) - LEFT, BAR - 2, f'{style} fill-opacity="0.45"'))
            body += [svg.circle(place(value), y + BAR / 2, 2.5, style) for value in values]
            body.append(svg.text(place(most) + 12, y + BAR / 2 + 4, f"{mean:.2f}", "start"))
    for index, (library, tint) in enumerate(COLOURS.items()):
        x = LEFT + index * 150
        body.append(svg.rectangle(x, 32, 12, 12, f'fill="{tint}"'))
        body.append(svg.text(x + 18, 42, library, "start"))
    body.append(svg.text(LEFT + WIDTH / 2, height - 12,
                         "max(GEMM, NCCL) / time: bar and number are the mean, each dot is a shape"))
    svg.write("docs/peers.svg", "Share of the bound", LEFT + WIDTH + 60, height, body)


if __name__ == "__main__":
    main()
