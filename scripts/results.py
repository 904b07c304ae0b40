"""What bench/results/tuned-*.json says: rows of `flashoverlap bench --tuned`, shape by shape."""

import glob
import json
import math
import os

from svg import ROOT

SHAPE = ("op", "fabric", "ranks", "dtype", "m", "n", "k", "a_layout", "b_layout", "experts")
SCHEDULE = ("strategy", "layout", "tile_cols", "groups", "waves_per_group", "rounds", "comm_sms")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return json.load(file)


def tuned_shapes():
    """The rows of each shape, of its newest file. Each has `random`: whether the shape was drawn."""
    files = [read(path) for path in glob.glob(os.path.join(ROOT, "bench/results/tuned-*.json"))]
    newest = {}
    for file in sorted(files, key=lambda each: each["machine"]["date"]):
        shapes = {}
        for row in file["rows"]:
            row["random"] = "--random" in file["machine"]["command"]
            shapes.setdefault(tuple(row[key] for key in SHAPE), []).append(row)
        newest.update(shapes)
    return list(newest.values())


def schedule(row):
    return tuple(str(row[key]) for key in SCHEDULE) + (row.get("shots", 0),)


def moved_bytes(row):
    """Of the full matrix that is communicated: C after a GEMM, A before one."""
    columns = row["n"] if row["op"].startswith("gemm_") else row["k"]
    return row["m"] * columns * {"bf16": 2, "fp16": 2, "fp32": 4}[row["dtype"]]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))
