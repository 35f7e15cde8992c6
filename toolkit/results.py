"""Classes of the values that functions of the toolkit return.

You do not construct them: for example, `toolkit.group_failures` returns a `FailureGroups`. Import them to
annotate your own functions, or to read what a result contains.
"""

from toolkit.base.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
