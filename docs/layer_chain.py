"""Draws docs/layer-chain.svg: python docs/layer_chain.py > docs/layer-chain.svg."""

from __future__ import annotations

INK, GREY, BLUE, ORANGE, GREEN = "#1f2937", "#6b7280", "#1d4ed8", "#b45309", "#047857"
SUB = "₀₁₂₃₄₅₆"


def text(
    x: float, y: float, words: str, size: int = 15, fill: str = INK, anchor: str = "middle", extra: str = ""
) -> str:
    """Words at a place."""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" {extra}>{words}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str, extra: str = "") -> str:
    """A rounded rectangle."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5" {extra}/>'
    )


def arrow(points: str, colour: str, extra: str = "") -> str:
    """A line that ends in the arrowhead of its colour."""
    return (
        f'<path d="{points}" fill="none" stroke="{colour}" stroke-width="2" marker-end="url(#{colour[1:]})" {extra}/>'
    )


def marker(colour: str) -> str:
    """The arrowhead of a colour."""
    return (
        f'<marker id="{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
    )


def worker(index: int, x: float) -> list[str]:
    """Two layers, the boundary between them, and the copies of u toward the neighbours."""
    first = 2 * index + 1
    parts = [box(x, 60, 200, 190, "#eef2ff", "#a5b4fc"), text(x + 100, 83, f"worker {index + 1}", 15, INK)]
    for place, layer in enumerate((first, first + 1)):
        left = x + 16 + 96 * place
        parts.append(box(left, 98, 72, 82, "#ffffff", INK))
        parts.append(text(left + 36, 121, f"layer {layer}", 13, GREY))
        parts.append(text(left + 36, 145, f"W{SUB[layer]}  b{SUB[layer]}"))
        parts.append(text(left + 36, 168, f"z{SUB[layer]}"))
    parts.append(arrow(f"M{x + 90},128 H{x + 110}", BLUE))
    parts.append(arrow(f"M{x + 110},152 H{x + 90}", ORANGE))
    for side, boundary in ((0, first - 1), (1, first + 1)):
        if 0 < boundary < 6:
            left = x + 10 + 134 * side
            parts.append(box(left, 202, 46, 32, "#ecfdf5", GREEN))
            parts.append(text(left + 23, 223, f"u{SUB[boundary]}", 15, GREEN))
    return parts


def between(left: int, x: float) -> list[str]:
    """What crosses the gap of 70 between two workers, and what does not."""
    return [
        arrow(f"M{x + 2},124 H{x + 67}", BLUE), text(x + 35, 116, f"q{SUB[left]}", 16, BLUE),
        arrow(f"M{x + 68},156 H{x + 3}", ORANGE), text(x + 35, 174, f"p{SUB[left + 1]}", 16, ORANGE),
        f'<path d="M{x - 10},218 H{x + 80}" stroke="{GREEN}" stroke-width="1.5" stroke-dasharray="3 4"/>',
        text(x + 35, 238, "equal,", 12, GREEN), text(x + 35, 252, "never sent", 12, GREEN),
    ]  # fmt: skip


def timeline(y: float, name: str) -> list[str]:
    """The phases of an epoch and the first of the next one."""
    parts = [text(92, y + 19, name, 13, INK, "end")]
    x = 100.0
    for phase, width in (("p", 130), ("W", 180), ("b", 40), ("z", 90), ("q", 60), ("u", 40), ("p", 130)):
        parts += [
            box(x, y, width, 28, "#ffffff" if x < 640 else "#f3f4f6", INK),
            text(x + width / 2, y + 19, phase, 14),
        ]
        x += width
    return parts


def picture() -> str:
    """The chain above, two epochs of two neighbours below."""
    columns = (100, 370, 640)
    parts = ["".join(map(marker, (INK, BLUE, ORANGE))), '<rect width="950" height="480" rx="10" fill="#fbfbfd"/>']
    parts += [text(475, 32, "The layers of one network, dealt to three workers", 17, INK, extra='font-weight="600"')]
    parts += [box(10, 108, 62, 62, "#ffffff", GREY), text(41, 134, "features", 12, GREY), text(41, 156, "X = p₁", 14)]
    parts += [arrow("M72,139 H98", INK)]
    parts += [box(878, 108, 62, 62, "#ffffff", GREY), text(909, 134, "labels", 12, GREY), text(909, 156, "y", 15)]
    parts += [arrow("M878,139 H842", INK)]
    for index, x in enumerate(columns):
        parts += worker(index, x)
    for left, x in ((2, 300), (4, 570)):
        parts += between(left, x)
    title = "One epoch, side by side: messages travel while both compute"
    parts += [text(475, 304, title, 17, INK, extra='font-weight="600"')]
    parts += timeline(328, "worker 1") + timeline(410, "worker 2")
    parts += [arrow("M230,410 C260,370 500,400 538,358", ORANGE), text(345, 378, "p₃, needed for q₂", 14, ORANGE)]
    parts += [arrow("M600,356 C620,395 670,370 690,408", BLUE)]
    parts += [text(785, 380, "q₂, needed after the", 14, BLUE), text(785, 397, "first product of p₃", 14, BLUE)]
    parts += [text(475, 466, "p and q cross at 32 bits a value, or as packed level indices of a few bits", 14, GREY)]
    title = (
        "Layer chain: each worker owns two layers; q goes right, p goes left, both neighbours keep their own copy of u"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 950 480" font-family="Helvetica, Arial, sans-serif" '
        f'role="img"><title>{title}</title>\n' + "\n".join(parts) + "\n</svg>"
    )


if __name__ == "__main__":
    print(picture())
