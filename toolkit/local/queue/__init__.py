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
- A step that is posted twice (an endpoint that is asked again answers again) counts once; the second is
  answered as deduplicated. Every step comes with the history up to itself, not with later ones.
- A run whose step is given up has failed as a whole: what else it had to deliver or wait for is dropped.
  Resumed, it goes on with that, too, sleeps and waits until their own moments; restarted, it does not.
- A wait's time-out says `waitTimeout` and has no `out`; the headers and the body that its endpoint named for
  a time-out are shown, not used. Deadlines of waiters are Unix milliseconds. An event for one run is kept
  until the run waits for it or ends; one for all is lost on those who do not wait yet.
- Canceling runs or messages in bulk without ids and filters means all of them; there is no limit to how many.
- A delivery counts against the rate of its key for one period from its start, also across a restart. What was
  under way when the service was killed counts against no parallelism after it.
- The time factor divides waits (retries, delays, sleeps, time-outs of waits, rate periods). Time-outs of
  deliveries, deduplication, retention and all timestamps are real.
- Filters by what is not there (URL groups, queues, schedules) find nothing.
- A run that was invoked by another tells it how it ended, once; what is resumed or restarted later does not.
- URL groups, queues (and `/v2/enqueue`), schedules, webhooks of runs, and pausing or pinning keys of flow
  control are not there.
"""
