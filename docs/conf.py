"""How the documentation is built: `make docs`."""

import re
from types import MemberDescriptorType

from tacit import __version__

project = "tacit"
author = "the tacit authors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"tacit {version}"
html_static_path, html_css_files = ["static"], ["pages.css"]
maximum_signature_line_length = 88  # a longer one has a line for each argument
python_display_short_literal_types = True

autodoc_member_order = "bysource"
autodoc_type_aliases = {"Event": "Event", "Adjacency": "Adjacency"}
autodoc_default_options = {"members": True}
napoleon_custom_sections = ["Guarantee"]
napoleon_attr_annotations = False  # the "bool_" of an annotation would be a link
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # two rooms have a Trained; signatures name it without its room

CODE = re.compile(r"(``.*?``)")
ALIAS = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
RECORD = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+\.md)\)")


def _keep_bars(app, what, name, obj, options, lines):  # noqa: ARG001 (Sphinx calls it so)
    """Lets docstrings write |x|, which reStructuredText takes for the name of a substitution."""
    for place, line in enumerate(lines):
        if not line.startswith((">>>", "...")):
            parts = CODE.split(line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[place] = "".join(parts)


def _link_records(app, docname, source):  # noqa: ARG001 (Sphinx calls it so)
    """A link to a record, which is no page of these docs, becomes one to the file itself."""
    source[0] = RECORD.sub(r"{download}`\1 <\2>`", source[0])


def _name_aliases(app, what, name, obj, options, signature, returned):  # noqa: ARG001
    """An alias of types is shown by its name, which autodoc wraps when annotations are texts."""
    plain = [text and ALIAS.sub(r"\1", text) for text in (signature, returned)]
    return plain[0], plain[1]


def _skip(app, what, name, obj, skip, options):  # noqa: ARG001
    """Leaves out fields, which a class's own text describes, and what scikit-learn adds."""
    return isinstance(obj, MemberDescriptorType) or name == "set_score_request" or None


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", _link_records)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _name_aliases)
    app.connect("autodoc-process-docstring", _keep_bars)
