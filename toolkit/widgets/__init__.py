"""Panels for notebooks: every choice is also a value and a line of code.

To add one, subclass `toolkit.widgets.panel.Panel`. Every text from data is masked by the panel's redactor and
escaped before it becomes markup; traits of controls are drawn as text.
"""

from toolkit.widgets.failure_browser import FailureBrowser
from toolkit.widgets.failure_filter import FailureFilterWidget
from toolkit.widgets.failure_rows import FailureView
from toolkit.widgets.metadata_filter import MetadataFilterWidget
from toolkit.widgets.redrive_panel import RedrivePanel
from toolkit.widgets.similarity_query import SimilarityQueryWidget
from toolkit.widgets.vector_map import VectorMap

__all__ = [
    "FailureBrowser",
    "FailureFilterWidget",
    "FailureView",
    "MetadataFilterWidget",
    "RedrivePanel",
    "SimilarityQueryWidget",
    "VectorMap",
]
