"""Sphinx's settings for the site; `make site` runs Sphinx on pages that tools/website/pages.py gathered."""

import re
import sys
from pathlib import Path

import plotly
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # labkit, for the pages made from its docstrings

project, author = "labkit", "labkit contributors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["out"]
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # tools/website has run them

html_theme = "furo"  # it loads nothing from other sites
html_title = "labkit"
html_static_path = [str(HERE / "static"), str(Path(plotly.__file__).parent / "package_data" / "plotly.min.js")]
html_css_files = ["site.css"]
html_show_copyright = html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # a page that was opened from a file may not read another one
html_math_renderer = "mathml"

smartquotes = False
default_role = "code"  # docstrings have single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # a list of attributes, not an entry for each
linkcheck_timeout = 20


def visit_math(writer: object, node: nodes.Element) -> None:
    """Formulas in the form that browsers draw by themselves; a script that draws them would come from outside."""
    formula = re.sub(r"\\[bB]igg?[lrm]?(?![a-zA-Z])", "", node.astext())  # browsers choose the size of parentheses
    formula = re.sub(r"\\[dt]?frac(\d)(\d)", r"\\frac{\1}{\2}", formula)
    formula = formula.replace("{gathered}", "{matrix}")
    writer.body.append(tex2mathml(formula, as_block=not isinstance(node, nodes.math)))
    raise nodes.SkipNode


def tables(app: object, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """The Markdown tables of a docstring, as tables of Sphinx's language."""
    text = []
    for previous, line in zip(["", *lines], lines, strict=False):
        indent, bar, row = line.partition("|")
        if not bar or indent.strip():
            text.append(line)
            continue
        if not previous.strip().startswith("|"):
            text += ["", f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
        if row.strip("|- "):
            first, *cells = (cell.strip() for cell in row.removesuffix("|").split("|"))
            text += [f"{indent}   * - {first}", *(f"{indent}     - {cell}" for cell in cells)]
    lines[:] = text


def setup(app: object) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", tables)
    app.add_html_math_renderer("mathml", inline_renderers=(visit_math, None), block_renderers=(visit_math, None))
