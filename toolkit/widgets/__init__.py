"""Panels for notebooks: every choice is also a value and a line of code.

To add one, subclass `toolkit.widgets.panel.Panel`. Every text from data is masked by the panel's redactor and
escaped before it becomes markup; traits of controls are drawn as text.
"""
