"""The sample history, the small application that fails, and the main job from end to end.

``stories.py`` and ``causes.py`` define the failures of the sample, ``history.py`` makes wire entries of it,
``documents.py`` and ``topics.py`` write the sample texts, ``filling.py`` puts both into the embedded service.
``application.py`` is the application that really fails, ``run.py`` the main job.
"""
