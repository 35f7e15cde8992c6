"""The queue of the embedded service: messages, delivery, callbacks, dead letters, workflow runs.

The specification leaves things open; this is what is assumed here:

- Lists are newest first, by when an entry entered them. ``fromDate`` and ``toDate`` test ``createdAt``. -
Without a response the service makes one, as a gateway does: 504 for a timeout, 503 when nothing could be
reached, 502 when the response was broken; with a Date, so that the failure has a time. - What a destination
asks for (Retry-After and its kin) comes before Retry-Delay, and that before the formula. - Resuming,
restarting and retrying remove an entry from the DLQ; what fails again is a new entry. - A failing failure
callback of a run shows in the state of the run's entry alone; other callbacks that fail have entries of their
own. - Where a step's publish has no settings of its own, those of the run's first message apply. - A step
that is posted twice (an endpoint that is called again posts again) counts once; the second response says
deduplicated. Every step comes with the history up to itself, not with later ones. - A run whose step has
failed for good has failed as a whole: what else it had to deliver or wait for is dropped. When it is resumed,
that is resumed, too, sleeps and waits until their own times; when restarted, it is not. - A wait that times
out has `waitTimeout` and no `out`; the headers and the body that its endpoint named for a timeout are shown,
not used. Deadlines of waiters are Unix milliseconds. An event for one run is stored until the run waits for
it or ends; one for all is lost on those who do not wait yet. - Canceling runs or messages in bulk without ids
and filters means all of them; there is no limit to how many. - A delivery counts against the rate of its key
for one period from its start, also across a restart. Deliveries that were running when the service was killed
do not count against parallelism after it. - The time factor divides delays (retries, delays, sleeps, timeouts
of waits, rate periods). Timeouts of deliveries, deduplication, retention and all timestamps are real. -
Filters by what is not there (URL groups, queues, schedules) find nothing. - A run that was invoked by another
tells it how it ended, once; what is resumed or restarted later does not. - URL groups, queues (and
`/v2/enqueue`), schedules, webhooks of runs, and pausing or pinning keys of flow control are not there.
"""
