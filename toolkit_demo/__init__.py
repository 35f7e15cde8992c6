"""The sample history, the small application that fails, the main job, and faults on demand."""
