"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

import toolkit

project = html_title = "Workflow and vector toolkit"
copyright = project  # noqa: A001 - Sphinx's name
version = release = toolkit.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_nb"]
exclude_patterns = ["pictures"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types in words
numpydoc_class_members_toctree = False
numpydoc_show_class_members = True
numpydoc_show_inherited_class_members = False

# the notebooks come with the outputs of `make demo`, and are not executed again
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_enable_extensions = []  # a dollar is a dollar

html_theme = "furo"
html_copy_source = False
