#!/usr/bin/env python3
"""Prints how far predictions are off, as tables for docs/log/predictions.md, from bench/results/tuned-*.json.

The error is predicted / measured − 1. The rank correlation is Spearman's, over the schedules of a shape that were
tried, in files that have them.
"""

import math

from results import tuned_shapes

FEWEST = 10  # schedules of a shape, for a rank correlation that says something


def kind(row):
    return f'{row["fabric"]}, {"random" if row["random"] else "listed"}'


def ranks(values):
    """Places in ascending order; equal values have the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def correlation(left, right):
    """None where all values of one side are equal."""
    left_mean, right_mean = sum(left) / len(left), sum(right) / len(right)
    together = sum((a - left_mean) * (b - right_mean) for a, b in zip(left, right))
    apart = math.sqrt(sum((a - left_mean) ** 2 for a in left) * sum((b - right_mean) ** 2 for b in right))
    return together / apart if apart else None


def rank_correlation(rows):
    """Of all schedules that the methods tried. Those that the tuner tried were measured in another way."""
    pairs = [pair for row in rows if "trials" in row and not row["tuned"]
             for pair in zip(row["trials"]["predicted_us"], row["trials"]["measured_us"])]
    if len(pairs) < FEWEST:
        return None
    return correlation(*(ranks(list(values)) for values in zip(*pairs)))


def grouped(pairs):
    groups = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return sorted(groups.items())


def print_errors(shapes):
    print("| | strategy | runs | mean error | worst | bias |\n| --- | --- | --- | --- | --- | --- |")
    errors = grouped(((kind(row), row["strategy"]), row["predicted_us"] / row["overlap_us"] - 1)
                     for rows in shapes for row in rows)
    for (words, strategy), values in errors:
        sizes = [abs(value) for value in values]
        print(f"| {words} | `{strategy}` | {len(values)} | {100 * sum(sizes) / len(sizes):.1f} % | "
              f"{100 * max(sizes):.0f} % | {100 * sum(values) / len(values):+.0f} % |".replace("| -", "| −"))


def print_correlations(shapes):
    print("| | operation | shapes | mean | lowest | of 0.9 or more |\n| --- | --- | --- | --- | --- | --- |")
    correlations = grouped(((kind(rows[0]), rows[0]["op"]), rank_correlation(rows)) for rows in shapes)
    for (words, operation), values in correlations:
        values = [value for value in values if value is not None]
        if values:
            print(f"| {words} | `{operation}` | {len(values)} | {sum(values) / len(values):.2f} | "
                  f"{min(values):.2f} | {sum(value >= 0.9 for value in values)} |".replace("| -", "| −"))


def main():
    shapes = tuned_shapes()
    print_errors(shapes)
    print()
    print_correlations(shapes)


if __name__ == "__main__":
    main()
