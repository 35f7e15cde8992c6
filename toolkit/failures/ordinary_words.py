"""Words of error messages of any service.

If several errors have such a word in common, for example "timeout", it names no host and no third party.
"""

from __future__ import annotations

from typing import Final

ORDINARY_WORDS: Final = frozenset(
    """
    about access after again all allowed already and any api application are argument attempt
    authentication authorization available backend bad been before body but call calls can cannot
    client closed code configured connect connection connections contact could data database
    deadline denied detail details did does down due element empty end endpoint entity error errors
    exceeded exception exhausted exist exists expected expired fail failed failure fatal field file
    for forbidden format found from function gateway get given had handler has have header host html
    http https implemented info input instead internal into invalid its json key large late later
    length limit line list lock locked long lost many match max maximum message method missing
    module more must name network new none not null number object occurred one only open operation
    out page parameter parse path peer permission please pool port post process processing program
    proxy put queue quota rate read reason received record refused rejected remote request requested
    requests required reset resource response retries retry retrying returned run running see
    seconds send server service should size slow socket some something stack started state status
    step still stop stopped stream string style success support system task temporarily temporary
    terminated that the them then there this thread time timed timeout timeouts title token too
    trace transaction try type unable unauthorized unavailable undefined unexpected unhandled
    unknown unprocessable unsupported upstream url used user using valid value values version wait
    waiting was went were when while will with without worker write wrong you your
    """.split()  # noqa: SIM905 - words
)
"""In lower case, in the order of the alphabet, with three letters or more."""
