"""The queue half of the embedded service: messages, delivery, callbacks, the dead letter queue, workflow runs."""
