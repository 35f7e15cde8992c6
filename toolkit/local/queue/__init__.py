"""The queue half of the embedded service: messages, delivery, callbacks, dead letters, workflow runs."""
