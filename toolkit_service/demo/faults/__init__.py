"""Scripted faults, for testing clients.

A script is a JSON object, in a file for ``toolkit serve --faults FILE`` or as the body of
``PUT /admin/faults`` (which replaces it; ``GET`` shows it with counts, ``DELETE`` clears it)::

    {"faults": [
      {"route": "/v2/workflows/dlq", "first": 2, "status": 429, "headers": {"Retry-After": "1"}},
      {"route": "/v2/workflows/dlq", "first": 3, "reset": {"share": 0.5}},
      {"route": "/vector/*/range", "times": null, "page": {"cursor": "endless"}}
    ]}

Each fault counts the requests that match the route and the method, beginning when you send the script. If
several faults are due for one request, the first in the script is applied.

Fields that select requests:

==================  =====================================================================================
``route``           path with ``*`` and ``?`` as wildcards; required
``method``          for example ``GET``; if omitted, every method
``first``           number of the first request with the fault, from 1 (1)
``times``           number of successive requests with the fault (1); null: all that follow
==================  =====================================================================================

Fields about the response. With any of the first four, the service is not called. Otherwise it is called, and
the response is changed: a response can be lost after the work was done.

==================  =====================================================================================
``status``          200 to 599; without a body, the response is ``{"error": …}``
``body``            text
``body_base64``     bytes
``json``            any JSON value
``headers``         object of strings; null removes a header. ``{now+5}`` means Unix seconds five seconds
                    from now, ``{date-60}`` an HTTP date a minute ago
``drop``            names of fields to omit from the object in the response
``replace``         array of ``{"text", "by"}`` or ``{"text", "by_base64"}``: each occurrence is replaced
``pad``             bytes of white space after the body; with ``gzip`` a decompression bomb
``page``            a fault in a page of a listing, see below
==================  =====================================================================================

Fields about how the response is sent. The connection is closed after each response with a fault.

====================  ===================================================================================
``delay``             seconds before the first byte
``bytes_per_second``  speed of the body
``gzip``              ``whole``, ``corrupt``, ``wrong_crc`` or ``no_trailer``
``chunked``           whether the body is sent in chunks instead of with a Content-Length
``length_off``        added to the true Content-Length
``cut``               where the connection is closed: ``{"byte": n}`` of the response, including the head,
                      or ``{"share": x}`` of the body, 0 to 1
``reset``             the same, with a TCP reset
====================  ===================================================================================

Fields of ``page``, for responses with ``messages``, ``runs``, ``events`` or ``result.vectors``. All pages of
the listing itself still arrive.

===========  ============================================================================================
``insert``   an extra page before the requested one: ``empty``, or the ``previous`` one again
``overlap``  number of rows of the previous page before the rows of this page
``order``    ``reversed`` or ``shuffled``
``twice``    whether each row is repeated
``extra``    number of copies of the last row with made-up ids, beyond the page size
``cursor``   ``repeated``: the cursor of the request; ``first``: the first cursor of the listing;
             ``endless``: a new cursor instead of the end, which leads to the same page again
``end``      how the last page is marked: ``absent``, ``null`` or ``empty``
===========  ============================================================================================

For a refused connection, end the service. For pages with other faults, use ``json``.
"""
