"""Colours of all figures against their paper: text has WCAG's contrast of 4.5, lines and edges have 3."""

import pytest
from contrast import LEAST, contrast
from plotly import io

from labtrace.show.style import COLOURS, EDGE, LINES, PAPER, WALL, text_on
from labtrace.show.timeline import LOOKS
from labtrace.show.views import VIEWS, Bars

TEMPLATE = io.templates[io.templates.default].layout
OF_BARS = {look[1] for view in VIEWS.values() if isinstance(view, Bars) for look in view.looks.values()}


def rgb(colour):
    return tuple(bytes.fromhex({"black": "000000", "white": "ffffff"}.get(colour, colour).removeprefix("#")))


def test_black_on_white_has_the_greatest_contrast():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)


def test_every_figure_brings_paper_on_which_its_text_can_be_read():
    assert TEMPLATE.paper_bgcolor == TEMPLATE.plot_bgcolor == PAPER
    assert contrast(rgb(TEMPLATE.font.color), rgb(PAPER)) >= LEAST


@pytest.mark.parametrize("colour", sorted({*OF_BARS, *(look[1] for look in LOOKS.values())}))
def test_a_bar_can_be_seen_and_its_text_be_read(colour):
    assert contrast(rgb(text_on(colour)), rgb(colour)) >= LEAST
    assert max(contrast(rgb(one), rgb(PAPER)) for one in (colour, EDGE["color"])) >= 3


@pytest.mark.parametrize("colour", sorted({*COLOURS.values(), *LINES, WALL, TEMPLATE.modebar.color}))
def test_a_line_can_be_seen(colour):
    assert contrast(rgb(colour), rgb(PAPER)) >= 3
