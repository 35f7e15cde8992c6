"""The sample history, an application that fails, the demo, and faults on demand."""
