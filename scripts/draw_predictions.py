#!/usr/bin/env python3
"""What GPUs that are not at hand are predicted to reach: draw_predictions.py FLASHOVERLAP [RESULTS.csv]

Runs the command FLASHOVERLAP for each machine and shape; writes bench/results/predicted-MACHINE-DATE.json and
draws docs/predicted-MACHINE.svg. RESULTS.csv is the published system's own file of A800 (evaluation/results.csv
in github.com/infinigence/FlashOverlap, commit e704f6e): then prints how far predictions are from it instead.
"""

import concurrent.futures
import csv
import datetime
import json
import os
import subprocess
import sys

import svg
from results import geometric_mean

MACHINES = {"a100": "A100 (SXM)", "a800": "A800 (SXM)", "rtx4090": "RTX 4090", "rtx3090": "RTX 3090", "l40s": "L40S"}
OPERATIONS = ("gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm")
RANKS = (2, 4)
COLUMNS = 8192
ROWS = (512, 1024, 2048, 4096, 8192, 16384)  # times COLUMNS: 4 to 128 million elements; a tile's for each rank
DEPTHS = (512, 1024, 2048, 4096, 8192, 16384)
PUBLISHED_ROWS, PUBLISHED_DEPTHS = ROWS[2:], DEPTHS[2:]
WORTH = 1.02  # what is predicted to be faster by less would not pay


def plan(command, machine, op, shape, ranks, *schedule):
    m, n, k = shape
    line = [command, "plan", op, "--m", m, "--n", n, "--k", k, "--ranks", ranks, "--machine", machine, *schedule,
            "--json"]
    return json.loads(subprocess.run([str(word) for word in line], check=True, capture_output=True).stdout)


def predict(command, machine, op, shape, ranks):
    """The best of each strategy, and the parts of `sequential`."""
    best = {}
    found = plan(command, machine, op, shape, ranks, "--strategy", "best")
    for candidate in found["candidates"]:
        best.setdefault(candidate["schedule"]["strategy"], candidate)
    sequential = best["sequential"]["schedule"]
    tile = f'{sequential["tile_rows"]}x{sequential["tile_cols"]}'
    # The GEMM alone is what comes first of gemm_all_reduce.
    alone = plan(command, machine, "gemm_all_reduce", shape, ranks, "--strategy", "sequential", "--tile", tile)
    gemm = alone["prediction"]["gemm_us"]
    times = {strategy: round(candidate["predicted_us"], 2) for strategy, candidate in best.items()}
    return {"op": op, "m": shape[0], "n": shape[1], "k": shape[2], "ranks": ranks, "gemm_us": round(gemm, 2),
            "comm_us": round(times["sequential"] - gemm, 2), "bound_us": round(found["prediction"]["bound_us"], 2),
            "predicted_us": times}


def predict_all(command, problems):
    """In the order of `problems`: machine, operation, shape, ranks."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda problem: predict(command, *problem), problems))


def best_of(row):
    strategy = min(row["predicted_us"], key=row["predicted_us"].get)
    return strategy, speedup_of(row, strategy)


def speedup_of(row, strategy):
    return row["predicted_us"]["sequential"] / row["predicted_us"][strategy]


def share_of(row, strategy):
    """Of the bound max(GEMM alone, NCCL alone)."""
    return max(row["gemm_us"], row["comm_us"]) / row["predicted_us"][strategy]


def summarise(machine, rows):
    """What is to be compared with the published headline figures: its method, its sizes."""
    rows = [row for row in rows if row["op"] != "all_gather_gemm" and row["m"] in PUBLISHED_ROWS
            and row["k"] in PUBLISHED_DEPTHS]
    speedups = [speedup_of(row, "signal") for row in rows]
    shares = [share_of(row, "signal") for row in rows]
    best = [best_of(row)[1] for row in rows]
    print(f"{machine}: {len(rows)} published sizes; by signal mean {geometric_mean(speedups):.2f}, {min(speedups):.2f} "
          f"to {max(speedups):.2f}; share of the bound {min(shares):.2f} to {max(shares):.2f}; best strategy mean "
          f"{geometric_mean(best):.2f}, up to {max(best):.2f}")


CELL_WIDTH, CELL_HEIGHT = 62, 34


def cell(x, y, strategy, speedup):
    pays = speedup >= WORTH
    fill, words = svg.speedup_colour(speedup if pays else 1)
    return [svg.rectangle(x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, f'fill="{fill}"'),
            svg.text(x + CELL_WIDTH / 2, y + 15, f"{speedup:.2f}", more=f' class="{words}"'),
            svg.text(x + CELL_WIDTH / 2, y + 28, strategy if pays else "–", more=f' class="small {words}"')]


def panel(left, top, rows):
    """One operation: k to the right, elements of C upwards."""
    right, bottom = left + len(DEPTHS) * CELL_WIDTH, top + len(ROWS) * CELL_HEIGHT
    body = [svg.text((left + right) / 2, top - 8, f'{rows[0]["op"]}, {rows[0]["ranks"]} GPUs')]
    for column, depth in enumerate(DEPTHS):
        body.append(svg.text(left + (column + 0.5) * CELL_WIDTH, bottom + 14, depth, more=' class="small"'))
    for line, count in enumerate(ROWS):
        y = bottom - (line + 0.5) * CELL_HEIGHT
        body.append(svg.text(left - 5, y + 4, f"{count * COLUMNS >> 20}", "end", ' class="small"'))
    for row in rows:
        place = left + DEPTHS.index(row["k"]) * CELL_WIDTH, bottom - (ROWS.index(row["m"]) + 1) * CELL_HEIGHT
        body += cell(*place, *best_of(row))
    return body + [svg.text((left + right) / 2, bottom + 30, "k of each GPU"),
                   svg.upright(left - 28, (top + bottom) / 2, f"m · {COLUMNS}, million")]


def draw(machine, rows):
    width, height = len(DEPTHS) * CELL_WIDTH + 70, len(ROWS) * CELL_HEIGHT + 70
    body = [svg.text(width, 44, "the best strategy, and how many times as fast as the GEMM, then NCCL; "
                     f"–: less than {WORTH}, would not pay", more=' class="small"')]
    for line, op in enumerate(OPERATIONS):
        for column, ranks in enumerate(RANKS):
            chosen = [row for row in rows if row["op"] == op and row["ranks"] == ranks]
            body += panel(50 + column * width, 80 + line * height, chosen)
    svg.write(f"docs/predicted-{machine}.svg", f"Predicted speed-up on {MACHINES[machine]}", 2 * width,
              50 + len(OPERATIONS) * height, body)


def predict_machine(command, machine):
    problems = [(machine, op, (m, COLUMNS, k), ranks)
                for op in OPERATIONS for ranks in RANKS for m in ROWS for k in DEPTHS]
    rows = predict_all(command, problems)
    date = datetime.date.today().isoformat()
    path = os.path.join(svg.ROOT, f"bench/results/predicted-{machine}-{date}.json")
    with open(path, "w", encoding="utf-8") as file:
        head = {"machine": machine, "date": date, "command": "flashoverlap plan --strategy best", "measured": False}
        lines = ",\n".join(json.dumps(row) for row in rows)
        file.write(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n')
    draw(machine, rows)
    summarise(machine, rows)


def compare(command, path):
    """With every run of 2 and 4 A800 in the published file, a shape's runs taken together."""
    published = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["primitive"] == "all_to_all" or int(row["gpu"]) not in RANKS:
                continue
            shape = tuple(int(row[key]) for key in "MNK")
            problem = ("a800", "gemm_" + row["primitive"], shape, int(row["gpu"]))
            published.setdefault(problem, []).append((float(row["baseline"]), float(row["flashoverlap"])))
    errors = {}
    for problem, row in zip(published, predict_all(command, list(published))):
        sequential, overlapped = (geometric_mean(times) for times in zip(*published[problem]))
        errors.setdefault("sequential", []).append(row["predicted_us"]["sequential"] / 1e3 / sequential)
        for key in ("signal", (*problem[1:2], problem[3])):
            errors.setdefault(key, []).append(row["predicted_us"]["signal"] / 1e3 / overlapped)
        print(*problem, f'published {sequential / overlapped:.2f}, predicted {speedup_of(row, "signal"):.2f}')
    for key, each in errors.items():
        print(f"{key}: {len(each)} shapes, predicted over published time {geometric_mean(each):.2f} in the mean, "
              f"{min(each):.2f} to {max(each):.2f}")


def main():
    if len(sys.argv) == 3:
        compare(*sys.argv[1:])
        return
    for machine in MACHINES:
        predict_machine(sys.argv[1], machine)


if __name__ == "__main__":
    main()
