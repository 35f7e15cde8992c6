"""Find tokens that begin with a known prefix, such as ``ghp_`` or ``glpat-``.

If you add a form, add a line to the table; there is no other place. A line is a fact about the tokens of one
issuer: the prefix, the characters that follow it, how many they are, and where the form is documented. A
number with ``+`` is the least; another one is the usual length.

Method: almost every prefix ends with a sign (``_ - . ~``), and most signs in messages end no prefix. The
search goes from sign to sign and compares the three characters that end there with the endings of all
prefixes. Only then does it look up the prefix and read the characters after it. The few prefixes that end
without a sign (`BLOCKS`) are searched one by one.

Example: in ``key nghp_16C7e42F292c6912E7710c838347Ae178B4a``, the ``_`` ends ``hp_``, which is an ending. The
prefix is ``ghp_``, and 36 letters and digits follow, so that 40 characters are masked.

The characters after a prefix keep out false alarms: they have to be enough (`least_length`), and letters have
to be mixed with digits or capitals, unlike ``npm_17555797524366201024`` and ``glpat-example-of-a-name``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

ALPHABETS: Final = {
    "hex": "0-9a-f",
    "anyhex": "0-9A-Fa-f",
    "lower": "0-9a-z",
    "upper": "0-9A-Z",
    "alnum": "0-9A-Za-z",
    "word": "0-9A-Za-z_\\-",
    "dotted": "0-9A-Za-z_\\-.=",
    "base64": "0-9A-Za-z_\\-+/=",
}
"""Characters by the name that the table calls them, as a set of a regular expression."""

_TABLE: Final = """
A3-                   word     30+   gitleaks: 1password-secret-key
ops_eyJ               base64   250+  gitleaks: 1password-service-account-token
p8e-                  lower    32    gitleaks: adobe-client-secret
AGE-SECRET-KEY-1      upper    58    gitleaks: age-secret-key
LTAI                  alnum    20    gitleaks: alibaba-access-key-id
sk-ant-               word     93+   gitleaks: anthropic-api-key
apify_api_            alnum    36    trufflehog: apify
AKCp                  alnum    69    gitleaks: artifactory-api-key
cmVmd                 alnum    59    gitleaks: artifactory-reference-token
ATATT3                dotted   20+   gitleaks: atlassian-api-token
ATCTT3                dotted   20+   trufflehog: atlassian
ATBB                  alnum    32    trufflehog: bitbucketapppassword
ABSK                  base64   109+  gitleaks: aws-amazon-bedrock-api-key-long-lived
bedrock-api-key-      base64   16+   gitleaks: aws-amazon-bedrock-api-key-short-lived
bkua_                 hex      40    trufflehog: buildkite
CCIPAT_               word     40+   trufflehog: circleci
CCIPRJ_               word     40+   circleci.com: project tokens
CLOJARS_              lower    60    gitleaks: clojars-api-token
v1.0-                 word     171   gitleaks: cloudflare-origin-ca-key
4b1d                  alnum    38    gitleaks: clickhouse-cloud-api-secret-key
CFPAT-                word     43    trufflehog: contentfulpersonalaccesstoken
cio                   alnum    32    github.com: crates.io tokens
dapi                  hex      32    gitleaks: databricks-api-token
csk-                  lower    48    cloud.cerebras.ai: keys
dnkey-                dotted   79    gitleaks: defined-networking-api-token
ddp_                  alnum    36    deno.com: personal tokens
ddw_                  alnum    36    deno.com: organization tokens
dop_v1_               hex      64    gitleaks: digitalocean-pat
doo_v1_               hex      64    gitleaks: digitalocean-access-token
dor_v1_               hex      64    gitleaks: digitalocean-refresh-token
dckr_pat_             word     27    trufflehog: dockerhub
dckr_oat_             word     27    docker.com: organization tokens
dp.pt.                alnum    43    gitleaks: doppler-api-token
dp.st.                dotted   40+   trufflehog: doppler
dp.ct.                alnum    40+   trufflehog: doppler
dp.sa.                alnum    40+   trufflehog: doppler
dp.scim.              alnum    40+   trufflehog: doppler
dp.audit.             alnum    40+   trufflehog: doppler
sl.                   dotted   130+  gitleaks: dropbox-short-lived-api-token
duffel_test_          dotted   43    gitleaks: duffel-api-token
duffel_live_          dotted   43    gitleaks: duffel-api-token
dt0c01.               dotted   89    gitleaks: dynatrace-api-token
dt0s01.               dotted   89    dynatrace.com: token formats
dt0s16.               dotted   89    dynatrace.com: token formats
EZAK                  alnum    54    gitleaks: easypost-api-token
EZTK                  alnum    54    gitleaks: easypost-test-api-token
e2b_                  hex      40    e2b.dev: keys
EAAA                  word     22+   gitleaks: square-access-token
EAAC                  alnum    100+  gitleaks: facebook-page-access-token
EAAM                  alnum    100+  gitleaks: facebook-page-access-token
fc-                   hex      32    firecrawl.dev: keys
figd_                 word     40+   trufflehog: figmapersonalaccesstoken
figdr_                word     40+   figma.com: refresh tokens
fw_                   alnum    22+   fireworks.ai: keys
FLWSECK_TEST-         alnum    12+   gitleaks: flutterwave-secret-key
FLWSECK-              alnum    32+   trufflehog: flutterwave
fo1_                  word     43    gitleaks: flyio-access-token
fm1r_                 base64   100+  gitleaks: flyio-access-token
fm1a_                 base64   100+  gitleaks: flyio-access-token
fm2_                  base64   100+  gitleaks: flyio-access-token
fio-u-                dotted   64    gitleaks: frameio-api-token
AIza                  word     30+   gitleaks: gcp-api-key
GOCSPX-               word     28    trufflehog: googleoauth2
ya29.                 word     20+   detect-secrets, trufflehog: googleoauth2
GOOG1E                upper    50+   cloud.google.com: HMAC keys
ghp_                  alnum    36    gitleaks: github-pat
gho_                  alnum    36    gitleaks: github-oauth
ghu_                  alnum    36    gitleaks: github-app-token
ghs_                  alnum    36    gitleaks: github-app-token
ghr_                  alnum    36    gitleaks: github-refresh-token
github_pat_           word     82    gitleaks: github-fine-grained-pat
glpat-                dotted   20    gitleaks: gitlab-pat
glcbt-                word     22+   gitleaks: gitlab-cicd-job-token
gldt-                 word     20    gitleaks: gitlab-deploy-token
glffct-               word     20    gitleaks: gitlab-feature-flag-client-token
glft-                 word     20    gitleaks: gitlab-feed-token
glimt-                word     25    gitleaks: gitlab-incoming-mail-token
glagent-              word     50    gitleaks: gitlab-kubernetes-agent-token
gloas-                word     64    gitleaks: gitlab-oauth-app-secret
glptt-                hex      40    gitleaks: gitlab-ptt
GR1348941             word     20    gitleaks: gitlab-rrt
glrt-                 dotted   20    gitleaks: gitlab-runner-authentication-token
glrtr-                dotted   20    gitlab.com: token prefixes
glsoat-               word     20    gitleaks: gitlab-scim-token
glwt-                 word     20    gitlab.com: token prefixes
gsk_                  alnum    52    trufflehog: groq
glc_                  base64   32+   gitleaks: grafana-cloud-api-token
glsa_                 word     41    gitleaks: grafana-service-account-token
pat.                  dotted   68    gitleaks: harness-api-key
sat.                  dotted   68    gitleaks: harness-api-key
hvs.                  word     90+   gitleaks: vault-service-token
hvb.                  word     138+  gitleaks: vault-batch-token
hvr.                  word     90+   vaultproject.io: recovery tokens
HRKU-                 word     60    gitleaks: heroku-api-key-v2
hcaik_                lower    58    honeycomb.io: ingest keys
hcbik_                lower    58    honeycomb.io: ingest keys
hcxik_                lower    58    honeycomb.io: ingest keys
pat-na1-              word     36    trufflehog: hubspotapikey
pat-eu1-              word     36    trufflehog: hubspotapikey
hf_                   alnum    20+   gitleaks: huggingface-access-token
api_org_              alnum    34    gitleaks: huggingface-organization-api-token
ico-                  alnum    32    gitleaks: infracost-api-token
s-s4t2ud-             hex      64    gitleaks: intra42-client-secret
s-s4t2af-             hex      64    gitleaks: intra42-client-secret
lsv2_pt_              word     43    trufflehog: langsmith
lsv2_sk_              word     43    trufflehog: langsmith
lin_api_              alnum    40    gitleaks: linear-api-key
lin_oauth_            alnum    40+   linear.app: tokens
pylf_v1_              word     40+   logfire: write tokens
key-                  hex      32    gitleaks: mailgun-private-api-token
mlsn.                 hex      64    mailersend.com: tokens
sk.eyJ                dotted   60+   mapbox.com: secret tokens
tk.eyJ                dotted   60+   mapbox.com: temporary tokens
mdb_sa_sk_            word     40    mongodb.com: service accounts
nfp_                  alnum    36    trufflehog: netlify
NRAK-                 alnum    27    gitleaks: new-relic-user-api-key
NRJS-                 hex      19    gitleaks: new-relic-browser-api-token
NRII-                 word     32    gitleaks: new-relic-insert-key
NRIQ-                 word     32    newrelic.com: insights query keys
NRRA-                 hex      42    newrelic.com: REST keys
napi_                 lower    60+   neon.tech: keys
ntn_                  alnum    46    gitleaks: notion-api-token
secret_               alnum    43    trufflehog: notion
npm_                  alnum    36    gitleaks: npm-access-token
oy2                   lower    43    trufflehog: nugetapikey
nvapi-                word     64    trufflehog: nvapi
API-                  upper    26    gitleaks: octopus-deploy-api-key
sk-                   word     20+   gitleaks: openai-api-key
sess-                 alnum    40    openai.com: session keys
sk-or-v1-             hex      64    trufflehog: openrouter
sha256~               word     43    gitleaks: openshift-user-token
pplx-                 alnum    48    gitleaks: perplexity-api-key
phx_                  word     43+   trufflehog: posthog
pcsk_                 word     60+   trufflehog: pinecone
access-production-    word     36    gitleaks: plaid-api-token
access-development-   word     36    gitleaks: plaid-api-token
access-sandbox-       word     36    gitleaks: plaid-api-token
pscale_tkn_           dotted   32+   gitleaks: planetscale-api-token
pscale_oauth_         dotted   32+   gitleaks: planetscale-oauth-token
pscale_pw_            dotted   32+   gitleaks: planetscale-password
PMAK-                 word     59    gitleaks: postman-api-token
pnu_                  alnum    36    gitleaks: prefect-api-token
pnb_                  alnum    36    trufflehog: prefect
pul-                  hex      40    gitleaks: pulumi-api-token
pypi-                 word     50+   gitleaks: pypi-upload-token
rzp_live_             alnum    14    trufflehog: razorpay
rzp_test_             alnum    14    trufflehog: razorpay
rdme_                 lower    70    gitleaks: readme-api-token
rnd_                  alnum    28    render.com: keys
r8_                   word     37    trufflehog: replicate
re_                   word     33    resend.com: keys
rootly_               hex      64    trufflehog: rootly
rpa_                  alnum    40+   runpod.io: keys
rubygems_             hex      48    gitleaks: rubygems-api-token
tk-us-                word     48    gitleaks: scalingo-api-token
xkeysib-              word     81    gitleaks: sendinblue-api-token
xsmtpsib-             word     81    trufflehog: sendinbluev2
sntrys_               base64   100+  gitleaks: sentry-org-token
sntryu_               hex      64    gitleaks: sentry-user-token
sm_aat_               alnum    16    gitleaks: settlemint-application-access-token
sm_pat_               alnum    16    gitleaks: settlemint-personal-access-token
sm_sat_               alnum    16    gitleaks: settlemint-service-access-token
shippo_live_          anyhex   40    gitleaks: shippo-api-token
shippo_test_          anyhex   40    gitleaks: shippo-api-token
shpat_                anyhex   32    gitleaks: shopify-access-token
shpca_                anyhex   32    gitleaks: shopify-custom-access-token
shppa_                anyhex   32    gitleaks: shopify-private-app-access-token
shpss_                anyhex   32    gitleaks: shopify-shared-secret
xapp-                 word     8+    gitleaks: slack-app-token
xoxa-                 word     8+    gitleaks: slack-legacy-workspace-token
xoxb-                 word     8+    gitleaks: slack-bot-token
xoxc-                 word     8+    trufflehog: slack
xoxd-                 base64   8+    trufflehog: slack
xoxe-                 word     8+    gitleaks: slack-config-refresh-token
xoxe.xoxb-            word     8+    gitleaks: slack-config-access-token
xoxe.xoxp-            word     8+    gitleaks: slack-config-access-token
xoxo-                 word     8+    gitleaks: slack-legacy-token
xoxp-                 word     8+    gitleaks: slack-user-token
xoxr-                 word     8+    gitleaks: slack-legacy-workspace-token
xoxs-                 word     8+    gitleaks: slack-legacy-token
squ_                  hex      40    trufflehog: sonarcloud
sqp_                  hex      40    trufflehog: sonarcloud
sqa_                  hex      40    trufflehog: sonarcloud
sgp_                  word     40+   gitleaks: sourcegraph-access-token
sgd_                  hex      64    sourcegraph.com: access tokens
slk_                  hex      64    sourcegraph.com: license keys
sq0atp-               word     22+   gitleaks: square-access-token
sq0csp-               word     43    detect-secrets: square oauth secret
sq0idp-               word     22    trufflehog: square
sk_live_              word     10+   gitleaks: stripe-access-token
sk_test_              word     10+   gitleaks: stripe-access-token
sk_prod_              word     10+   gitleaks: stripe-access-token
rk_live_              word     10+   gitleaks: stripe-access-token
rk_test_              word     10+   gitleaks: stripe-access-token
rk_prod_              word     10+   gitleaks: stripe-access-token
whsec_                base64   32+   stripe.com: signing secrets
sbp_                  hex      40    trufflehog: supabasetoken
sb_secret_            word     31+   supabase.com: API keys
tskey-                word     20+   trufflehog: tailscale
tvly-                 word     32+   tavily.com: keys
AKID                  alnum    32    trufflehog: tencentcloudkey
tgp_v1_               word     43    together.ai: keys
SK                    hex      32    gitleaks: twilio-api-key
tfp_                  dotted   59    gitleaks: typeform-api-token
BBFF-                 alnum    30    trufflehog: ubidots
vcp_                  alnum    24+   vercel.com: tokens
waka_                 word     36    wakatime.com: keys
xai-                  word     80    trufflehog: xai
xau_                  alnum    30+   xata.io: keys
AQVN                  word     35+   gitleaks: yandex-api-key
y0_                   word     50+   trufflehog: yandex
aio_                  alnum    28    trufflehog: adafruitio
AVNS_                 word     16+   aiven.io: passwords of services
AIK_                  alnum    40+   aikido.dev: tokens
xaat-                 word     36    axiom.co: API tokens
xapt-                 word     36    axiom.co: personal tokens
ddo_                  alnum    36    deno.com: tokens of organizations
dvc_server_           word     32+   devcycle.com: server keys
sk_                   hex      48    trufflehog: elevenlabs
eyJrIjoi              base64   70+   gitleaks: grafana-api-key
signkey-prod-         hex      64    inngest.com: signing keys
jina_                 alnum    60    trufflehog: jina
sdk-                  word     36    trufflehog: launchdarkly
mka_                  word     40+   mergify.com: keys
nyk_v0_               alnum    64    nylas.com: keys
api_live.             dotted   40+   onfido.com: tokens
api_sandbox.          dotted   40+   onfido.com: tokens
os_v2_app_            lower    90+   onesignal.com: keys of apps
os_v2_org_            lower    90+   onesignal.com: keys of organizations
pdl_live_apikey_      word     40+   paddle.com: keys
pdl_sdbx_apikey_      word     40+   paddle.com: keys
persona_production_   word     36    withpersona.com: keys
persona_sandbox_      word     36    withpersona.com: keys
polar_pat_            alnum    40+   polar.sh: personal tokens
polar_oat_            alnum    40+   polar.sh: tokens of organizations
tr_prod_              alnum    20+   trigger.dev: keys
tr_dev_               alnum    20+   trigger.dev: keys
tr_pat_               lower    40    trigger.dev: personal tokens
sig_                  alnum    28    upstash.com: signing keys of QStash
eyJVc2VySUQiOi        base64   60+   upstash.com: tokens of QStash
vtwn_                 alnum    27    val.town: tokens
vercel_blob_rw_       word     40+   vercel.com: tokens of blob stores
wandb_v1_             word     77    wandb.ai: keys
"""


_SIGNS: Final = "_-.~"
_WHOLE: Final = frozenset(
    (
        "key-",
        "API-",
        "ico-",
        "pat.",
        "sat.",
        "v1.0-",
        "csk-",
        "sess-",
        "secret_",
        "p8e-",
    )
)
"""Prefixes that also end ordinary words, such as ``monkey-``: their tokens are whole words of full length."""

# characters of "sk-" and other short prefixes, which also end words such as "task-"
_SHORT_PREFIX: Final = 3
# least characters after a prefix if the token may be truncated
_CUT_SHORT: Final = 16
# characters that end a prefix and are looked up first
_ENDING: Final = 3
# characters that are read before a token is known to be one: no length is greater
_WINDOW: Final = 400


@dataclass(frozen=True, slots=True)
class TokenForm:
    """One line of the table."""

    prefix: str
    alphabet: str
    length: int
    is_least: bool
    source: str

    @property
    def is_block(self) -> bool:
        """Return whether the prefix ends without a sign."""
        return self.prefix[-1] not in _SIGNS

    @property
    def is_exact(self) -> bool:
        """Return whether only a whole word of the documented length is a token of this form."""
        is_short = len(self.prefix) <= _SHORT_PREFIX
        return is_short or self.is_block or self.prefix in _WHOLE

    @property
    def has_exact_length(self) -> bool:
        """Return whether a longer word is no token of this form."""
        return self.is_exact and not self.is_least

    @property
    def least_length(self) -> int:
        """Return the least number of characters that have to follow the prefix."""
        if self.is_exact:
            return self.length
        return min(self.length, _CUT_SHORT)


def _read_table(table: str) -> dict[str, TokenForm]:
    """Return the forms by prefix.

    >>> _read_table("ghp_ alnum 36 gitleaks: github-pat")["ghp_"].length
    36
    """
    forms = {}
    for line in table.strip().splitlines():
        prefix, alphabet, length, source = line.split(maxsplit=3)
        number = int(length.removesuffix("+"))
        forms[prefix] = TokenForm(
            prefix, alphabet, number, length.endswith("+"), source
        )

    return forms


TOKEN_FORMS: Final = _read_table(_TABLE)
"""Every form by its prefix."""

BLOCKS: Final = tuple(prefix for prefix in TOKEN_FORMS if prefix[-1] not in _SIGNS)
"""The prefixes that end without a sign."""

_SIGN: Final = re.compile(f"[{re.escape(_SIGNS)}]")
_RUNS: Final = {name: re.compile(f"[{signs}]*") for name, signs in ALPHABETS.items()}
_IS_RANDOM: Final = re.compile("(?=[^A-Za-z]*[A-Za-z])(?=[^0-9A-Z]*[0-9A-Z])")
_NO_TOKEN: Final = 0
"""Returned in place of the end of a token. An end is an index after the prefix, so it is never 0."""

_FOUR_ALIKE: Final = re.compile(r"(.)\1{3}")  # as in base64 of images: "EAAAAAAA"
_IN_WORD: Final = re.compile("[0-9A-Za-z]")
_IN_NAME: Final = re.compile("[0-9A-Za-z_-]")

_SIGNED: Final = tuple(prefix for prefix in TOKEN_FORMS if prefix[-1] in _SIGNS)
_ENDINGS: Final = frozenset(prefix[-_ENDING:] for prefix in _SIGNED)
_LENGTHS: Final = tuple(sorted({len(prefix) for prefix in _SIGNED}, reverse=True))


def _any_of(texts: Iterable[str]) -> str:
    """Return a regular expression for any of these strings, grouped by the first character for speed.

    >>> _any_of(["EZAK", "AIza", "EZTK"])
    'A(?:Iza)|E(?:ZAK|ZTK)'
    """
    endings: dict[str, list[str]] = {}
    for text in sorted(texts):
        endings.setdefault(text[0], []).append(re.escape(text[1:]))
    return "|".join(
        f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in endings.items()
    )


_DOTTED: Final = {prefix[-_ENDING - 1 :] for prefix in _SIGNED if prefix[-1] == "."}
_LONG_BLOCKS: Final = [prefix for prefix in BLOCKS if len(prefix) > _SHORT_PREFIX]
_LIKELY_BLOCKS: Final = (
    f"{_any_of(_LONG_BLOCKS)}|SK[0-9a-f]{{4}}|cio[0-9A-Za-z]{{4}}|oy2[0-9a-z]{{4}}"
)

SUSPICIOUS_TOKENS: Final = f"{_any_of(_DOTTED)}|{_LIKELY_BLOCKS}"
"""A quick test (RE2 syntax) for the prefixes that end with a dot or without a sign."""

LIKELY_TOKENS: Final = f"(?-i:(?:{_any_of(_SIGNED)})[\\w+/=.-]|{_LIKELY_BLOCKS})"
"""A closer test (RE2 syntax) for every prefix of the table."""


def token_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of tokens with a prefix of the table; a span includes the prefix.

    >>> list(token_spans("sent ghp_16C7e42F292c6912E7710c838347Ae178B4a"))
    [(5, 45)]
    """
    yield from _signed_tokens(text)
    for prefix in filter(text.__contains__, BLOCKS):
        yield from _blocks(text, TOKEN_FORMS[prefix])


def _signed_tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of tokens with a prefix that ends with a sign, for example ``ghp_``."""
    # Method: hundreds of prefixes are found from their ends, because few signs end them. In "is_sent
    # ghp_16C7…", there are two signs:
    #   is_    the last characters end no prefix of the table (`_ENDINGS`)
    #   ghp_   they do; of "ent ghp_", … and "ghp_", only the last one is in the table
    # From there, the token is read to the right. Signs inside a token are not tried.
    end_of_token = 0
    for sign in _SIGN.finditer(text):
        after = sign.end()
        if after <= end_of_token:
            continue
        ending = text[after - _ENDING : after]
        if ending not in _ENDINGS:
            continue
        token = _signed_token(text, after)
        if token is not None:
            yield token
            end_of_token = token[1]


def _signed_token(text: str, after: int) -> tuple[int, int] | None:
    """Return the span of the token whose prefix ends at this index; the longest prefix comes first."""
    # for example, "gsk_" is looked up before "sk_"
    for length in _LENGTHS:
        start = max(after - length, 0)
        prefix = text[start:after]
        form = TOKEN_FORMS.get(prefix)
        if form is None:
            continue
        end = _token_end(text, start, form)
        if end != _NO_TOKEN:
            return start, end

    return None


def _blocks(text: str, form: TokenForm) -> Iterator[tuple[int, int]]:
    """Yield the spans of tokens with a prefix that ends without a sign."""
    # Base64 contains every short prefix somewhere. In "EAAAAAAAAB", the prefix "EAAA" is followed by four
    # equal letters, as in images and almost never in a token.
    start = text.find(form.prefix)
    while start >= 0:
        after = start + len(form.prefix)
        end = _token_end(text, start, form)
        is_token = end != _NO_TOKEN and not _FOUR_ALIKE.search(text, after, end)
        if is_token:
            yield start, end
            after = end

        start = text.find(form.prefix, after)


def _begins_here(text: str, start: int, form: TokenForm) -> bool:
    """Return whether a prefix may begin at this index: some only begin words."""
    # For example, "gsk_" may follow any character, but the short prefix "sk-" is part of a word in "ask-me".
    if not form.is_exact:
        return True

    inside_word = _IN_NAME
    if form.is_block:
        inside_word = _IN_WORD
    previous_character = text[start - 1 : start]

    return inside_word.match(previous_character) is None


def _token_end(text: str, start: int, form: TokenForm) -> int:
    """Return the index after the token whose prefix begins at this index, or `_NO_TOKEN`."""
    # For example, a form of the table has the prefix "ghp_" and 36 letters or digits:
    #   xghp_16C7…           the prefix is part of a word: no token, if the form is exact
    #   ghp_short            too few characters
    #   ghp_aaaaaaaa…        no digits or capitals, as in names: not random
    #   ghp_16C7…, 36 more   a token
    if not _begins_here(text, start, form):
        return _NO_TOKEN

    after = start + len(form.prefix)
    # Test the first characters only: megabytes of base64 may follow a sign, and mostly they are no token.
    end = _run_end(text, after, after + _WINDOW, form)
    if end - after < form.least_length:
        return _NO_TOKEN
    if not _IS_RANDOM.match(text, after, end):
        return _NO_TOKEN
    if form.has_exact_length:
        return _exact_end(text, after, end, form)

    return _run_end(text, after, len(text), form)


def _run_end(text: str, after: int, limit: int, form: TokenForm) -> int:
    """Return the index after the characters that a token of this form may have, without dots at the end."""
    run = _RUNS[form.alphabet].match(text, after, limit)
    if run is None:
        return after

    return after + len(run[0].rstrip("."))


def _exact_end(text: str, after: int, run_end: int, form: TokenForm) -> int:
    """Return the end of a token of exactly the documented length, or `_NO_TOKEN` if the word is longer."""
    end = after + form.length
    next_character = text[end : end + 1]
    goes_on = run_end > end or _IN_WORD.match(next_character)
    if goes_on:
        return _NO_TOKEN

    return end
