"""The site: Markdown by MyST, the theme Furo, and five small extensions. `make docs` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent / "src")]

project = "vimco"
author = "The vimco developers"
copyright = "the vimco developers, MIT licence"
extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "api", "commandline", "formulas", "links", "tables"]
exclude_patterns = ["_*", "results", "models"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4  # the same anchors as on GitHub
myst_links_external_new_tab = True

pygments_dark_style = "github-dark"
html_title = "vimco"
html_theme = "furo"
html_static_path = ["_static", "images"]
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0059a3", "color-brand-content": "#0059a3"},
    "dark_css_variables": {"color-brand-primary": "#7fbdf5", "color-brand-content": "#7fbdf5"},
}
html_math_renderer = "formulas"
html_permalinks_icon = "#"
toc_object_entries_show_parents = "hide"
smartquotes = False
maximum_signature_line_length = 80
add_module_names = False
python_use_unqualified_type_names = True
copybutton_exclude = ".linenos, .gp, .go"
