"""Draws shares over time as SVG, with nothing but the standard library."""

WIDTH, HEIGHT = 820, 360
LEFT, RIGHT, TOP, BOTTOM = 52, 110, 34, 42
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"]


def draw_shares(path, title, seconds, lines, entitlements, note):
    """lines: [(name, [(second, percent), ...])]; entitlements: {name: [(from, until, percent)]},
    drawn dashed in the colour of the line."""
    def x(second):
        return LEFT + (WIDTH - LEFT - RIGHT) * second / seconds

    def y(percent):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / 100

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for percent in range(0, 101, 20):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent):.1f}" '
                   f'y2="{y(percent):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(percent) + 4:.1f}" text-anchor="end">'
                   f'{percent} %</text>')
    step = max(1, round(seconds / 12))
    for second in range(0, int(seconds) + 1, step):
        out.append(f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                   f'{second} s</text>')
    for (name, points), colour in zip(lines, COLOURS):
        for begin, end, percent in entitlements.get(name, []):
            out.append(f'<line x1="{x(begin):.1f}" x2="{x(end):.1f}" y1="{y(percent):.1f}" '
                       f'y2="{y(percent):.1f}" stroke="{colour}" stroke-dasharray="5 4" '
                       'opacity="0.6"/>')
        path_points = " ".join(f"{x(second):.1f},{y(percent):.1f}" for second, percent in points)
        out.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" '
                   'stroke-width="1.8"/>')
    for index, ((name, _), colour) in enumerate(zip(lines, COLOURS)):
        row = TOP + 16 + 20 * index
        out.append(f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 36}" y1="{row}" '
                   f'y2="{row}" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 42}" y="{row + 4}">{name}</text>')
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 8}" fill="#555555">{note}</text>')
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")
