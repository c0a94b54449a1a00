"""The plots of docs/performance.md, as SVG."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from side_by_side import CONCURRENCIES

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "tallystick"  # the same figures give the same file
mpl.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot as plt  # noqa: E402 - after the choice of its backend

_COLOURS = ("#0b6e4f", "#4caf7d", "#7a4fb0", "#b79ad9", "#b3541e", "#e0a070")


def plot_peers(document: Mapping[str, Any], path: Path) -> None:
    """Throughput and latency of every subject, with the spread over the rounds."""
    figure, (rate, latency) = plt.subplots(1, 2, figsize=(11, 4.2))
    names = list(document["subjects"])
    width = 0.8 / len(names)
    for axis, key, title in (
        (rate, "per_second", "operations/s (more is better)"),
        (latency, "p50_ms", "median latency, ms (less is better)"),
    ):
        for index, name in enumerate(names):
            levels = [document["subjects"][name][str(level)][key] for level in CONCURRENCIES]
            medians = [level["median"] for level in levels]
            below = [level["median"] - level["low"] for level in levels]
            above = [level["high"] - level["median"] for level in levels]
            places = [at + (index - len(names) / 2 + 0.5) * width for at in range(len(levels))]
            axis.bar(
                places,
                medians,
                width,
                yerr=(below, above),
                capsize=2,
                color=_COLOURS[index % len(_COLOURS)],
                label=name,
                error_kw={"linewidth": 0.8},
            )
        axis.set_xticks(range(len(CONCURRENCIES)), [f"{level} at once" for level in CONCURRENCIES])
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    latency.set_yscale("log")
    rate.legend(fontsize=8, frameon=False)
    _save(figure, path)


def plot_sizes(document: Mapping[str, Any], path: Path) -> None:
    """Medians over the number of claims."""
    sizes = document["growth"]["sizes"]
    figure, axis = plt.subplots(figsize=(6, 3.4))
    for index, (key, label) in enumerate(
        (
            ("claim_ms", "claim (no HTTP)"),
            ("replay_ms", "replay"),
            ("list_ms", "first page of 50"),
            ("deep_list_ms", "a page 2000 rows on"),
        )
    ):
        axis.plot(
            [size["rows"] for size in sizes],
            [size[key] for size in sizes],
            marker="o",
            color=_COLOURS[(index * 2) % len(_COLOURS)],
            label=label,
        )
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("claims in the table")
    axis.set_ylabel("median, ms")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
