"""Settings of the documentation site: `tox -e docs`, or `sphinx-build -W docs build/docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from actorproc import __version__

project = "actorproc"
author = "The authors of actorproc"
release = version = __version__
extensions = [
    "docs._extensions.reference",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_extensions", "grafana"]
root_doc = "index"

repository = ""
"""Address below which files of the repository are shown, without a slash at the end. Empty: links are plain text."""

# Headings have the anchors that code hosts give them; tests/docs compares the two.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# Docstrings: sections of Google's form; a name in single backticks is a reference where there is such a name.
default_role = "py:obj"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"actorproc {release}"
html_copy_source = False
html_search_scorer = str(Path(__file__).with_name("_extensions") / "scorer.js")
html_show_sourcelink = False
html_show_copyright = False
html_extra_path = ["grafana"]
# Nothing is fetched from elsewhere: the pages and their search work from a folder on disk.
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
