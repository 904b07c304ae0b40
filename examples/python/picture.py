"""Curves as SVG, by the standard library alone, readable on light and on dark pages. Notebooks draw a `Picture`."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, WIDTH - 20, 60, HEIGHT - 50
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.small{font-size:10px}.head{font-weight:bold}"
    ".axis{stroke:#888;fill:none}.grid{stroke:#8884;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>"
)


@dataclass
class Curve:
    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    width: float = 1.6


@dataclass
class Picture:
    """across, upwards: what the axes say. Both begin at 0. Curves are drawn one over the other, the last on top."""

    title: str
    across: str
    upwards: str
    curves: Sequence[Curve]

    def write(self, path: Path) -> None:
        path.write_text(self._repr_svg_() + "\n", encoding="utf-8")

    def _repr_svg_(self) -> str:
        xs, ys = zip(*(point for curve in self.curves for point in curve.points))
        horizontal, vertical = Axis(max(xs), LEFT, RIGHT), Axis(max(ys), BOTTOM, TOP)
        title = html.escape(self.title)
        body = [text(WIDTH / 2, 22, title, "middle", "head")]
        for value in horizontal.steps():
            x = horizontal.place(value)
            body.append(path([(x, BOTTOM), (x, TOP)], 'class="grid"'))
            body.append(text(x, BOTTOM + 15, f"{value:g}", "middle", "small"))
        for value in vertical.steps():
            y = vertical.place(value)
            body.append(path([(LEFT, y), (RIGHT, y)], 'class="grid"'))
            body.append(text(LEFT - 5, y + 4, f"{value:g}", "end", "small"))
        body.append(path([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], 'class="axis"'))
        body.append(text((LEFT + RIGHT) / 2, HEIGHT - 14, html.escape(self.across)))
        body.append(f'<g transform="rotate(-90)">{text(-(TOP + BOTTOM) / 2, 18, html.escape(self.upwards))}</g>')
        beginning = LEFT
        for curve in self.curves:
            style = f'fill="none" stroke="{curve.colour}" stroke-width="{curve.width}"'
            body.append(path([(horizontal.place(x), vertical.place(y)) for x, y in curve.points], style))
            body.append(path([(beginning, 42), (beginning + 24, 42)], style))
            body.append(text(beginning + 30, 46, html.escape(curve.name), "start"))
            beginning += 55 + 7 * len(curve.name)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img"><title>{title}</title>{STYLE}' + "\n".join(body) + "</svg>"
        )


class Axis:
    """From the value 0 at the place `begin` to a little more than `most` at `end`."""

    def __init__(self, most: float, begin: float, end: float) -> None:
        self.most, self.begin, self.end = 1.02 * most, begin, end

    def place(self, value: float) -> float:
        return self.begin + value / self.most * (self.end - self.begin)

    def steps(self) -> list[float]:
        """Five to ten round values."""
        unit = 10 ** math.floor(math.log10(self.most))
        step = next(unit * part for part in (1, 0.5, 0.2, 0.1) if self.most / (unit * part) >= 5)
        return [step * index for index in range(int(self.most / step) + 1)]


def text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def path(points: Sequence[tuple[float, float]], style: str) -> str:
    return f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" {style}/>'
