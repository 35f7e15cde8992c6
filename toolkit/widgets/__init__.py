"""Panels for notebooks: every choice is also a value and a line of code.

To add a panel, subclass `toolkit.widgets.form_panel.FormPanel`. Text from data is masked by the redactor of
the panel and escaped before it becomes markup; states of fields are drawn as text.
"""
