"""The queue half of the embedded service: messages, delivery, callbacks, dead letters, workflow runs.

The specification leaves things open; this is what is assumed here:

- Lists are newest first, by when an entry entered them. ``fromDate`` and ``toDate`` test ``createdAt``.
- Without an answer the service answers in the destination's place, as a gateway does: 504 for a time-out, 503
  when nothing could be reached, 502 when the answer was broken; with a Date, so that the failure has a time.
- What a destination asks for (Retry-After and its kin) comes before Retry-Delay, and that before the formula.
- Resuming, restarting and retrying take an entry out of the DLQ; what fails again is a new entry.
- A failing failure callback of a run shows in the state of the run's entry alone; other callbacks that fail
  have entries of their own.
- A step's publish inherits from the run's first message what it does not say itself.
- A run whose step is given up has failed as a whole: what else it had to deliver is dropped.
- The time factor divides waits (retries, delays, sleeps, rate periods). Time-outs, deduplication, retention
  and all timestamps are real.
- Topics, schedules, parallel steps' bookkeeping, wait-for-event and notify are not there.
"""
