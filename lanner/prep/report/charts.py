"""Small charts as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lanner.webpage import Markup, html

COLOURS = {"train": "#1b6ca8", "valid": "#3fa796", "test": "#f2a541"}


def legend(splits: Sequence[str]) -> Markup:
    """Which colour is which split."""
    parts = (f'<span style="color:{COLOURS[split]}">■</span> {html(split)}' for split in splits)
    return Markup(" ".join(parts))


def course(means: Mapping[str, Sequence[float]], rows: Mapping[str, int], width: Mapping[str, int]) -> Markup:
    """Means over the position of the rows, the splits one after the other; the axis begins at 0 or below."""
    high = max((max(line, default=0) for line in means.values()), default=0)
    low = min(0, min((min(line, default=0) for line in means.values()), default=0))
    wide, tall, left = 900, 160, 60
    across, up = (wide - left) / max(sum(rows.values()), 1), (tall - 20) / ((high - low) or 1)
    parts, begin = [], 0
    for split, line in means.items():
        steps = []
        for at, mean in enumerate(line):
            first, last = begin + at * width[split], begin + min((at + 1) * width[split], rows[split])
            y = tall - 10 - (mean - low) * up
            steps.append(f"{left + first * across:.1f},{y:.1f} {left + last * across:.1f},{y:.1f}")
        parts.append(f'<polyline fill="none" stroke="{COLOURS[split]}" stroke-width="1.5" points="{" ".join(steps)}"/>')
        begin += rows[split]
    for value in dict.fromkeys((low, high)):
        y = tall - 10 - (value - low) * up
        parts.append(f'<line x1="{left}" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" font-size="12" text-anchor="end">{value:.4g}</text>')
    return _svg(wide, tall, parts)


def histogram(bars: Mapping[str, Sequence[int]]) -> Markup:
    """Shares of each bar, the first split filled, the others as lines; heights by square root, so tails are seen."""
    wide, tall, parts = 144, 30, []
    heights = {split: [(count / max(sum(line), 1)) ** 0.5 for count in line] for split, line in bars.items()}
    most = max((max(line, default=0) for line in heights.values()), default=0) or 1
    for number, (split, line) in enumerate(heights.items()):
        step = wide / max(len(line), 1)
        path = f"M0 {tall}" + "".join(f"V{tall - tall * y / most:.1f}H{(at + 1) * step:g}" for at, y in enumerate(line))
        paint = f'fill="{COLOURS[split]}" opacity=".5"' if number == 0 else f'fill="none" stroke="{COLOURS[split]}"'
        parts.append(f'<path d="{path}V{tall}" {paint}/>')
    return _svg(wide, tall, parts)


def bar(shares: Sequence[float], colours: Sequence[str]) -> Markup:
    """Shares of one whole side by side."""
    wide, tall, left, parts = 80, 10, 0.0, []
    for share, colour in zip(shares, colours, strict=True):
        parts.append(f'<rect x="{left * wide:.1f}" width="{share * wide:.1f}" height="{tall}" fill="{colour}"/>')
        left += share
    return _svg(wide, tall, [f'<rect width="{wide}" height="{tall}" fill="#eee"/>', *parts])


def _svg(wide: int, tall: int, parts: Sequence[str]) -> Markup:
    return Markup(f'<svg width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">{"".join(parts)}</svg>')
