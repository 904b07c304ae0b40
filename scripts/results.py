"""What bench/results/tuned-*.json says: rows of `flashoverlap bench --tuned`, shape by shape."""

import glob
import json
import math
import os

from svg import ROOT

SHAPE = ("op", "fabric", "ranks", "dtype", "m", "n", "k", "a_layout", "b_layout", "experts")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return json.load(file)


def tuned_shapes():
    """The rows of each shape, of its newest file. Each has `random`: whether the shape was drawn. Of those only the
    newest file of an operation counts, for each kind and number of GPUs and fabric."""
    files = [read(path) for path in glob.glob(os.path.join(ROOT, "bench/results/tuned-*.json"))]
    listed, drawn = {}, {}
    for file in sorted(files, key=lambda each: each["machine"]["date"]):
        is_random = "--random" in file["machine"]["command"]
        shapes = {}
        for row in file["rows"]:
            row["random"] = is_random
            shapes.setdefault(tuple(row[key] for key in SHAPE), []).append(row)
        if is_random:
            first = file["rows"][0]
            drawn[first["op"], first["fabric"], first["ranks"], file["machine"]["gpu"]] = shapes
        else:
            listed.update(shapes)
    return list(listed.values()) + [rows for shapes in drawn.values() for rows in shapes.values()]


def moved_bytes(row):
    """Of the full matrix that is communicated: C after a GEMM, A before one."""
    columns = row["n"] if row["op"].startswith("gemm_") else row["k"]
    return row["m"] * columns * {"bf16": 2, "fp16": 2, "fp32": 4}[row["dtype"]]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))
