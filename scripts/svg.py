"""Parts of SVG pictures that are readable on light and on dark pages."""

import html
import math
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STYLE = ("<style>text{font:12px sans-serif;fill:#222}.small{font-size:10px}.head{font-weight:bold}"
         ".axis{stroke:#888;stroke-width:1;fill:none}.grid{stroke:#8884;stroke-width:1;fill:none}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}}.black{fill:#111}.white{fill:#fff}</style>")


def write(path, title, width, height, body):
    title = html.escape(title)
    heading = text(width / 2, 22, title, more=' class="head"')
    with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                   f'height="{height}" role="img"><title>{title}</title>{STYLE}{heading}')
        file.write("\n".join(body) + "</svg>\n")


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'


def upright(x, y, words):
    return text(x, y, words, more=f' transform="rotate(-90 {x:.1f} {y:.1f})"')


def circle(x, y, radius, style):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}/>'


def rectangle(x, y, width, height, style):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def line(points, style):
    return f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" {style}/>'


def speedup_colour(speedup):
    """Grey for 1, blue for up to twice as fast, red for up to twice as slow; and what is legible on it."""
    share = max(-1.0, min(1.0, math.log2(speedup)))
    end = (0x0b, 0x4a, 0xa2) if share > 0 else (0xa0, 0x1c, 0x10)
    parts = [round(0xe2 + (part - 0xe2) * abs(share)) for part in end]
    return "#" + "".join(f"{part:02x}" for part in parts), "white" if abs(share) > 0.7 else "black"


class LogAxis:
    """From the value `least` at the place `begin` to `most` at `end`."""

    def __init__(self, least, most, begin, end):
        self.least, self.most, self.begin, self.end = least, most, begin, end

    def place(self, value):
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return self.begin + share * (self.end - self.begin)

    def steps(self, base, beyond=0):
        """The powers of `base` on the axis, and this many below it."""
        first = math.ceil(math.log(self.least, base) - 1e-9) - beyond
        last = math.floor(math.log(self.most, base) + 1e-9)
        return [float(base) ** power for power in range(first, last + 1)]


def grid(horizontal, vertical, columns, rows):
    """Lines and numbers at `columns` and `rows`, pairs of a value and what is written there."""
    body = []
    for value, words in columns:
        x = horizontal.place(value)
        body.append(line([(x, vertical.begin), (x, vertical.end)], 'class="grid"'))
        body.append(text(x, vertical.begin + 15, words, more=' class="small"'))
    for value, words in rows:
        y = vertical.place(value)
        body.append(line([(horizontal.begin, y), (horizontal.end, y)], 'class="grid"'))
        body.append(text(horizontal.begin - 5, y + 4, words, "end", ' class="small"'))
    corners = [(horizontal.begin, vertical.end), (horizontal.begin, vertical.begin), (horizontal.end, vertical.begin)]
    return body + [line(corners, 'class="axis"')]


def short(number):
    """10000 as 10k."""
    return f"{number / 1000:g}k" if number >= 10000 else f"{number:g}"
