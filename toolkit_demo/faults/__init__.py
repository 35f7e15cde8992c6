"""Scripted faults, against which clients can be tested.

A script is a JSON object, in a file for ``toolkit serve --faults FILE`` or as the body of
``PUT /admin/faults`` (which replaces it; ``GET`` shows it with its counts, ``DELETE`` clears it)::

    {"faults": [
      {"route": "/v2/workflows/dlq", "first": 2, "status": 429, "headers": {"Retry-After": "1"}},
      {"route": "/v2/workflows/dlq", "first": 3, "reset": {"share": 0.5}},
      {"route": "/vector/*/range", "times": null, "page": {"cursor": "endless"}}
    ]}

Each fault counts the requests that its route and method match, from when the script was given. Where several
faults are due for one request, the first in the script is applied.

Which requests:

==================  =====================================================================================
``route``           path with ``*`` and ``?`` as wildcards; required
``method``          such as ``GET``; default: every one
``first``           number of the first request that it is applied to, from 1 (1)
``times``           how many requests in a row it is applied to (1); null: all from there on
==================  =====================================================================================

The response. With any of the first four the service itself is not called; else it is, and its own response is
changed (so a response can be lost after the work was done):

==================  =====================================================================================
``status``          200 to 599; without a body of its own the response is ``{"error": …}``
``body``            text
``body_base64``     bytes
``json``            any JSON value
``headers``         object of text; null removes a header. ``{now+5}`` means Unix seconds five seconds
                    from now, ``{date-60}`` for an HTTP date a minute ago
``drop``            names of fields to leave out of the response's object
``replace``         array of ``{"text", "by"}`` or ``{"text", "by_base64"}``: replaced wherever it occurs
``pad``             bytes of white space after the body; with ``gzip`` a decompression bomb
``page``            a fault in a page of a listing, below
==================  =====================================================================================

How the response is sent; the connection is closed after every response with a fault:

====================  ===================================================================================
``delay``             seconds before the first byte
``bytes_per_second``  speed of the body
``gzip``              ``whole``, ``corrupt``, ``wrong_crc`` or ``no_trailer``
``chunked``           whether the body is sent in chunks instead of with a Content-Length
``length_off``        added to the true Content-Length
``cut``               where the connection is closed: ``{"byte": n}`` of the response, head included, or
                      ``{"share": x}`` of its body, 0 to 1
``reset``             the same, with a TCP reset
====================  ===================================================================================

``page``, for responses with ``messages``, ``runs``, ``events`` or ``result.vectors``; no page of the listing
itself is withheld:

===========  ============================================================================================
``insert``   an extra page before the requested one: ``empty``, or the ``previous`` one again
``overlap``  number of rows of the previous page put before this page's
``order``    ``reversed`` or ``shuffled``
``twice``    whether every row is repeated
``extra``    number of copies of the last row with made-up ids, beyond the page size
``cursor``   ``repeated``: the one of the request; ``first``: the first of the listing; ``endless``: a new one
             instead of the end, which leads to the same page again
``end``      how the last page is marked: ``absent``, ``null`` or ``empty``
===========  ============================================================================================

A refused connection needs no script: end the service. Other pages than these can be written with ``json``.
"""
