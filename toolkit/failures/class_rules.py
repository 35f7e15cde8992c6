"""Define the rules of `classify_failures`: the class and the weight of each status, name and expression.

A weight of .9 is evidence that is rare in all other classes; .5 is just enough to name a class. For example,
status 429 alone means "throttled" with a weight of .8.
"""

from __future__ import annotations

from typing import Final

# The evidence of a status alone. 500 is no evidence; 400, 403, 404 and 409 need further evidence.
STATUSES: Final[dict[int, tuple[str, float]]] = {
    400: ("poison input", 0.35), 401: ("authentication", 0.75), 403: ("authentication", 0.45),
    404: ("contract drift", 0.3), 405: ("contract drift", 0.55), 406: ("contract drift", 0.5),
    407: ("authentication", 0.6), 408: ("transient", 0.6), 409: ("transient", 0.35),
    410: ("contract drift", 0.55), 412: ("transient", 0.4), 413: ("poison input", 0.65),
    414: ("poison input", 0.6), 415: ("contract drift", 0.5), 422: ("poison input", 0.65),
    423: ("transient", 0.5), 425: ("transient", 0.5), 426: ("contract drift", 0.5),
    429: ("throttled", 0.8), 431: ("poison input", 0.5), 501: ("contract drift", 0.55),
    502: ("dependency down", 0.55), 503: ("dependency down", 0.5), 504: ("dependency down", 0.75),
    507: ("resource exhaustion", 0.7), 511: ("authentication", 0.5), 521: ("dependency down", 0.7),
    522: ("dependency down", 0.75), 523: ("dependency down", 0.7), 524: ("dependency down", 0.55),
    529: ("throttled", 0.7), 530: ("dependency down", 0.5),
}  # fmt: skip

# Exception types and error codes, in lower case without separators and packages: whole names, then parts of
# names. Each line holds alternatives.
NAMES: Final = (
    ("transient", 0.9, r"""
        e?connreset|epipe|eaiagain|econnaborted|e?networkreset
        (?:connectionreset|connectionaborted|brokenpipe|remotedisconnected).*
        (?:incompleteread|chunkedencoding|clientoserror|serverdisconnected|protocolerror).*|40001
        40p01|55p03|sqlitebusy|ora00060|ora08177|aborted|eintr
        """, r"""
        deadlock|serializationfailure|transactionrollback|transactionconflict|optimisticlock
        staleobject|staleelement|lockwaittimeout|locktimeout|lockacquisition
        concurrentmodificationonwrite|dbupdateconcurrency|concurrencyconflict|writeconflict
        transientobject|transienttransaction|transient(?:error|exception)|leadernotavailable|notleader
        rebalanceinprogress|conditionalcheckfailed|conditionnotmet
        serialization(?:error|anomaly)|snapshotconflict
        consistencyexception|preconditionfailed|staleness|operationaborted|retryable|tryagain
        """),
    ("transient", 0.6, r"""
        e?timedout|esockettimedout|deadlineexceeded|undermaintenance|und_?err.*timeout
        .*time(?:d)?out(?:cancellation)?(?:error|exception|expired)?
        """, ""),
    ("throttled", 0.9, r"""
        aadsts90055
        """, r"""
        ratelimit|throttl|toomanyrequests|requestlimitexceeded|throughputexceeded|slowdown
        limitexceededexception|bandwidthlimit|floodwait|quotaexceeded|insufficientquota|usagelimit
        concurrencylimit|overloadederror
        """),
    ("throttled", 0.7, r"""
        resourceexhausted|serverbusy
        """, ""),
    ("poison input", 0.9, r"""
        22\w{3}|23\w{3}|erduper?entry|ora00001|ora01400|ora12899|ora01722|e11000|errinvalidargtype
        errinvalidchar|erdatatoolong|ertruncated\w*|unexpectedendofinput\w*
        """, r"""
        jsondecode|jsonparse|jsonsyntax|malformed|datetimeparse|unicodedecode|unicodeencode
        numberformat|invalidformat|invalidinput|invaliddata|datatypemismatch|dataerror
        constraintviolation|integrityerror|integrityconstraint|uniqueviolation|notnullviolation
        checkviolation|duplicatekey|dataintegrity|recordinvalid|recordnotunique|parsererror|parseerror
        saxparse|xmlsyntax|(?<!graphql)validation(?:error|exception|failed)|zoderror|invalidargument|unprocessable
        requesttoolarge|payloadtoolarge|entitytoolarge|formatexception|charactercoding|stringdataright
        outofrangevalue
        """),
    ("poison input", 0.5, r"""
        valueerror|illegalargumentexception|argumenterror|argumentexception|invalidrequest\w*
        badrequest\w*
        """, ""),
    ("contract drift", 0.9, r"""
        42703|42p01|42883|42s02|42s22|ora00904|ora00942|erbadfielderror|ernosuchtable
        """, r"""
        undefinedcolumn|undefinedtable|undefinedfunction|unrecognizedproperty|unknownproperty
        unknownfield|unimplemented|notimplemented|methodnotallowed|nosuchmethoderror|nosuchfielderror
        abstractmethoderror|incompatibleclasschange|incompatibleschema|schemaregistry|schemamismatch
        schemaerror|avrotype|avroruntime|invalidclassexception|mismatchedinput|unknownoperation
        unsupportedversion|unsupportedapiversion|versionmismatch|apiversion|deprecated
        responsevalidation|graphqlvalidation|unsupportedmediatype|mappingexception|notfoundroute
        routenotfound|nohandlerfound|routingerror
        """),
    ("authentication", 0.9, r"""
        aadsts(?!90055)\d+|28p01|28000|42501|ora01017|ora28000|eacces|eperm|eauth|eraccessdenied\w*
        noauth|wrongpass|noperm
        """, r"""
        unauthorized|unauthenticated|accessdenied|permissiondenied|forbidden|authentication
        authorization(?:error|exception|failed)|invalidtoken|invalidgrant|invalidclient|tokenexpired
        expiredtoken|expiredsignature|expiredjwt|jsonwebtoken|jwt\w*error|signatureexception
        signaturedoesnotmatch|invalidsignature|invalidaccesskey|unrecognizedclient|credential
        invalidapikey|notauthorized|insufficientprivilege|insufficientscope|securityexception
        autherror|logonfailure|badcredentials|loginfailed
        """),
    ("configuration", 0.9, r"""
        enotfound|3d000|ora12154|ora12514|eai?noname|errinvalidurl|depthzeroselfsignedcert
        unabletoverifyleafsignature|unknowntopicorpartition|keyvaultsecretnotfound|loaderror
        """, r"""
        modulenotfound|nosuchmodule|handlernotfound|noregion|importmoduleerror|missingconfig
        invalidconfig|nosuchfile\w*|filenotfound|cannotloadbean|importerror|classnotfound
        noclassdeffound|unsatisfiedlink|dllnotfound|improperlyconfigured
        configuration\w*(?:error|exception)|(?<!prismaclient)initializationerror|configerror
        configexception|nosuchbean|beancreation|unsatisfieddependency|nosuchbucket|nosuchhost|unknownhost|nameresolution
        missingenv|invalidurl|missingschema|invaliduri|uninitializedconstant|sslcerthasexpired
        certificateverif|certhasexpired|selfsignedcert|certpath|sslhandshake|sslcertverification
        resourcenotready|nosuchkeyconfig|queuedoesnotexist|nonexistentqueue|secretnotfound
        """),
    ("resource exhaustion", 0.95, r"""
        oom|enospc|emfile|enfile|enomem|53\d00|ora04031|ora01653|ora00020|ercontoomany
        ercontoomanyerror|edquot|exitcode137|errworkeroutofmemory
        """, r"""
        outofmemory|memoryerror|memorylimit|nomemory|bulkheadfull|oomkilled|toomanyopenfiles|diskfull
        nospace|toomanyconnections|toomanyclients|poolexhausted|pooltimeout|connectionpooltimeout
        rejectedexecution|storagefull|disklimit|heapexhausted
        """),
    ("dependency down", 0.9, r"""
        econnrefused|ehostunreach|enetunreach|ehostdown|57p0[123]|08006|08001|ora12541|ora01034
        ora01033|ora03113|masterdown|loading
        """, r"""
        connectionrefused|serviceunavailable|badgateway|gatewaytimeout|circuitbreak|brokencircuit
        callnotpermitted|nobrokersavailable|nonodes?available|nohosts?available|noservers?available
        serverselection|brokernotavailable|connecttimeout|connectionestablishment|unreachable
        clusterdown|opencircuit|connectexception|brokerunreachable|newconnectionerror|maxretryerror
        breakeropen
        """),
    ("dependency down", 0.6, r"""
        unavailable|connectionerror|operationalerror|communicationsexception|communicationslinkfailure
        jdbcconnectionexception|clientconnectorerror|connecterror|pgconnectionbad
        """, ""),
    ("bug", 0.85, r"""
        nullpointerexception|nullreferenceexception|attributeerror|nameerror|unboundlocalerror
        referenceerror|nomethoderror|zerodivisionerror|dividebyzeroexception|arithmeticexception
        divisionbyzeroerror|indexerror|indexoutofrangeexception|indexoutofboundsexception|rangeerror
        arrayindexoutofboundsexception|stringindexoutofboundsexception|classcastexception
        assertionerror|invalidcastexception|assertionfailederror|stackoverflowerror
        stackoverflowexception|recursionerror|systemstackerror|concurrentmodificationexception
        nosuchelementexception|illegalstateexception|argumentoutofrangeexception|errassertion|sigsegv
        unhandledmatcherror|argumentcounterror|nilpointer|typeerror|nomatchingpattern\w*
        notsupportedexception|arraystoreexception|negativearraysizeexception|uncaughtexception
        nilclass|emptycollection\w*|lateinitializationerror|uninitializedpropertyaccessexception
        indentationerror|kotlinnullpointerexception|frozenerror|unsupportedoperationexception|badmatch
        functionclause
        """, ""),
    ("bug", 0.6, r"""
        keyerror|keynotfoundexception|invalidoperationexception|lookuperror|stopiteration|panic
        syntaxerror|argumentnullexception
        """, ""),
)  # fmt: skip

# Words of messages, searched regardless of case.
WORDS: Final = (
    ("transient", 0.9, r"""
        deadlock(?:ed)? (?:detected|found|on|victim)|connection reset|could not serialize access
        socket hang up|connection (?:was )?(?:closed|aborted) (?:unexpectedly|by)|broken pipe
        unexpected EOF|lock wait timeout
        (?:retry|rerun|restart)(?:ing)? (?:the |your )?(?:transaction|operation)|write ?conflict
        etag mismatch|condition (?:\S+ ){0,8}not (?:been )?met
        (?:changed|modified|updated) (?:in the meantime|since (?:it|you)|by another|concurrently)
        server closed the connection|database (?:table )?is locked
        temporar(?:y|ily) (?:failure|error|issue|unable)|not (?:the )?leader|leader election
        version conflict|EAI_AGAIN|transient (?:error|failure|fault)|code = Aborted
        premature(?:ly)? (?:close|end)|conflict with (?:recovery|another)|stale object
        unexpected(?:ly)? (?:disconnect|close)
        (?:remote|other) (?:end|side|host|party) (?:has )?closed|forcibly closed
        connection (?:was )?(?:terminated|interrupted|lost|dropped)
        being (?:re)?(?:balanced|elected|deployed)|failover|SQLSTATE\W{0,3}(?:40001|40P01)
        server has gone away|lost connection to|concurrent (?:update|modification)
        stream (?:was )?reset|goaway
        """),
    ("transient", 0.6, r"""
        (?:request|read|connection|operation|query)s? (?:has )?timed? ?-?out
        (?:socket|call|statement|response|handshake)s? (?:has )?timed? ?-?out
        (?:please )?(?:try|retry) (?:again|your request|later)|deadline exceeded
        timeout of \d+ ?ms exceeded|i/o timeout|timeout (?:awaiting|while|waiting)
        timed out (?:after|waiting)|\(EXIT\) time ?out
        canceling statement due to statement timeout
        """),
    ("throttled", 0.9, r"""
        rate[ -]?limit|too many requests|request rate|rate exceeded|throttl
        quota (?:\w+ ){0,3}(?:exceeded|exhausted|reached)|exceeded (?:\w+ ){0,4}quota
        requests per (?:second|minute|hour|day)|slow down
        (?:daily|hourly|monthly|usage|sending|concurrency|account|request|per[ -]\w+) (?:\w+ )?limit
        limit exceeded|over (?:the |your )?(?:\w+ )?limit|server busy
        (?:too many|max(?:imum)? number of) (?:\w+ )?(?:calls|attempts|messages|queries|concurrent \w+)
        back ?off|model is (?:currently )?overloaded|code = ResourceExhausted
        retry (?:after|in) \d+ ?s
        """),
    ("poison input", 0.85, r"""
        not a valid \w+|must be (?:a|an|one of|at least|at most|greater|less|positive|before|after)\b
        invalid (?:input|json|date|email|payload|value|format|character|byte|utf|number|literal|base64)
        failed validation|validation (?:failed|error)|unexpected (?:token|end of (?:json|input|file))
        duplicate (?:key|entry)|violates (?:\w+[ -]){1,2}constraint|constraint failed|malformed
        expecting value|cannot be (?:null|blank|empty)|can't be blank|could not be parsed|unpars(?:e)?able
        too long for|is (?:a )?required\b|missing required (?:field|parameter|property)
        request entity too large|payload too large|out of range for|invalid \w+ id\b
        (?:can't|cannot|could not|unable to) (?:decode|parse)|for input string
        message (?:is )?too large|unsupported (?:file|image) (?:type|format)|maximum context length
        (?:EOF|error) while parsing|your card (?:number|was)|is (?:incorrect|too (?:long|large|short))
        (?:incorrect|illegal|unsupported|bad) (?:\w+ )?(?:number|value|character)
        (?:incorrect|illegal|unsupported|bad) (?:\w+ )?(?:format|argument|encoding|syntax)
        does not match (?:the )?(?:pattern|format|regex|expected type)|should (?:be|match|have)
        not (?:a )?well-formed|must (?:not |have |contain |match |start |end |exceed)
        invalid (?:\w+ )?(?:syntax|argument|request body|phone|url)
        invalid (?:\w+ )?(?:currency|country|postal|length|range|type)|unprocessable|already exists
        must be (?:terminated|a valid|in|between|non|equal|less|set to|unique)\b|null value in
        must be of (?:a|an|the|one|length|size|form|format|kind|class)\b
        must be of type \w+\b(?:[^,|\\]|$)
        truncated|(?:bad|corrupt(?:ed)?) (?:\w+ )?(?:data|file|image|archive|record|input)|checksum
        not a (?:number|zip|gzip|string)|cannot identify (?:image|file)|conversionsyntax|contains? NUL\b
        (?:cannot|could not|failed to|unable to) (?:convert|deserialize|unmarshal)
        (?:cannot|could not|failed to|unable to) (?:coerce|cast|read (?:image|pdf))|does not conform
        foreign key|unterminated
        """),
    # a thing that a request names, for example a seat; interfaces, such as an endpoint, are below
    ("poison input", 0.55, r"""
        (?:is|are) no longer available|(?:has|have) been (?:removed|retired)
        """),
    ("contract drift", 0.97, r"""
        (?:unknown|unrecognized) (?:keyword )?(?:parameter|argument|field|property)s?\b
        incompatible step (?:name|type)
        validation errors? for \w*(?:response|reply|result|event)\b
        expected (?:BEGIN|END)_\w+ but was
        (?:unexpected|unsupported) (?:keyword )?(?:parameter|argument|field|property)s?\b
        (?:API|endpoint|version) (?:\S+ )?(?:was|is|has been) (?:retired|removed)
        (?:API|endpoint|version) (?:\S+ )?(?:was|is|has been) (?:deprecated|sunset|discontinued)
        """),
    ("contract drift", 0.92, r"""
        (?:column|relation|function|field|table) \S{1,80} (?:does not|doesn't) exist
        (?:unknown|unrecognized|unexpected) (?:column|method|enum|service|operation|version)
        cannot (?:query field|(?:get|post|put|delete|patch) /)|method not allowed
        no longer supported|unsupported (?:api )?version|deprecated
        (?:API|endpoint|route|version|model|deployment|feature)s? (?:\S+ ){0,2}no longer available
        (?:field|column|parameter|property|format|protocol)s? (?:\S+ ){0,2}no longer available
        (?:page|path|resource|URL)s? (?:\S+ ){0,2}no longer available
        (?:API|endpoint|route|version|model|feature)s? (?:\S+ ){0,2}been (?:removed|retired)
        (?:field|column|parameter|property|argument|option)s? (?:\S+ ){0,2}been (?:removed|retired)
        (?:attribute|function|method|operation)s? (?:\S+ ){0,2}been (?:removed|retired)
        (?:page|path|resource|URL)s? (?:\S+ ){0,2}been (?:removed|retired)
        no route (?:match(?:es|ed)?|found)|missing required field|schema|code = Unimplemented
        unsupported media type|no such (?:column|table)|(?:has|have|was) been sunset
        wrong wire type|no such (?:method|endpoint|field|operation)
        unknown (?:type|message|path|url|resource|action|command)|unrecogni[sz]ed
        (?:response|payload) (?:shape|structure|format)
        expected (?:\S+ ){1,4}but (?:got|was|found|received)|api[ _]version
        incompatible (?:types?|version)|not implemented|unknown_?method|breaking change
        invalid value for enum|no enum constant|extra (?:inputs|fields) (?:are )?not permitted
        """),
    ("authentication", 0.9, r"""
        (?:invalid|expired|missing) (?:\w+ ){0,2}(?:token|api[ _-]?key|credentials?|signature)
        (?:incorrect|revoked|bad|wrong) (?:\w+ ){0,2}(?:token|api[ _-]?key|credentials?|signature)
        (?:invalid|expired|missing) (?:\w+ ){0,2}(?:password|jwt|session|client secret)
        (?:incorrect|revoked|bad|wrong) (?:\w+ ){0,2}(?:password|jwt|session|client secret)
        (?:token|api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:is|are|has) (?:\w+ )?(?:expired|invalid)
        (?:token)s? (?:\S+ ){0,4}(?:is|are|has) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:is) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:are|has) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:token)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:expired|invalid)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:expired|invalid)
        (?:token)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:have) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:was|were) (?:\w+ )?(?:revoked)
        (?:api[ _-]?key|credentials?)s? (?:\S+ ){0,4}(?:was|were) (?:\w+ )?(?:missing|incorrect)
        (?:session|jwt|secret|password)s? (?:\S+ ){0,4}(?:is|are|has) (?:\w+ )?(?:expired|invalid)
        (?:session|jwt)s? (?:\S+ ){0,4}(?:is|are|has) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:secret|password)s? (?:\S+ ){0,4}(?:is|are|has) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:session|jwt|secret|password)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:expired|invalid)
        (?:session|jwt)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:revoked|missing|incorrect)
        (?:secret|password)s? (?:\S+ ){0,4}(?:have|was|were) (?:\w+ )?(?:revoked|missing|incorrect)
        access[ _]denied|permission[ _]denied|unauthori[sz]ed|unauthenticated|\bforbidden\b
        authentication (?:failed|required|error)|not authorized|does not have (?:\S+ ){0,3}permission
        login failed|jwt expired|access token expired|code = (?:PermissionDenied|Unauthenticated)
        insufficient (?:scope|permissions?|privileges?)
        request (?:is |was |has been )?blocked|you have been blocked|configured to block access
        (?:could not|couldn't|failed to) (?:authenticate|verify signature)|must be authenticated
        failed to verify that the (?:\w+ )?request
        NOAUTH|WRONGPASS|pg_hba\.conf|invalid_(?:auth|credentials|api_?key|token)
        (?:signature|token) (?:has )?expired|log ?in (?:is )?required
        bad auth|(?:please )?(?:sign|log) in\b|requires authentication|invalid_(?:client|grant|token)
        not (?:allowed|permitted) to|signature (?:mismatch|verification)
        (?:role|policy|scope|privilege)s? (?:\S+ ){0,3}(?:required|missing|denied)
        account (?:is |has been )?(?:locked|disabled|suspended)
        """),
    ("configuration", 0.92, r"""
        environment variable|set [A-Z][A-Z0-9_]{3,} in|certificate is (?:not )?valid for
        class \S{1,80} not found
        no such file or directory: \S{1,80}(?:conf(?:ig)?|ya?ml|toml|ini|env|properties|pem|key|crt)\b
        (?:is|was) not (?:set|configured)|no module named|cannot find (?:module|package)
        no qualifying bean|bucket does not exist|database \S{1,80} does not exist|unknown database
        improperly configured|setting must|missing (?:required )?(?:configuration|config|setting|env)
        certificate (?:has expired|verify failed|is not trusted)|self[ -]signed certificate
        unable to verify the first certificate|no such host|name or service not known
        could not resolve host|ENOTFOUND|invalid url|unsupported protocol scheme
        certificate signed by unknown authority|certificate is invalid|role \S{1,80} does not exist
        queue \S{1,80} does not exist|(?:is|are) not (?:enabled|installed)
        (?:handler|entrypoint|executable|command) not found|misconfigur
        could not (?:load|find) (?:\w+ ){0,2}(?:config|driver|credentials)|secret \S{1,80} not found
        undefined constant|resolve placeholder|not exported|can't load|cannot (?:import|load)
        (?:cannot|could not) (?:resolve|locate) (?:\S+ ){0,3}(?:module|plugin|placeholder|bean)
        (?:cannot|could not) (?:load|import) (?:\S+ ){0,3}(?:module|plugin|placeholder|bean)
        (?:failed to|unable to) (?:resolve|locate) (?:\S+ ){0,3}(?:module|plugin|placeholder|bean)
        (?:failed to|unable to) (?:load|import) (?:\S+ ){0,3}(?:module|plugin|placeholder|bean)
        (?:cannot|could not) (?:resolve|locate|load|import) (?:\S+ ){0,3}(?:library|class)
        (?:failed to|unable to) (?:resolve|locate|load|import) (?:\S+ ){0,3}(?:library|class)
        (?:cannot|could not) (?:resolve|locate|load|import) (?:\S+ ){0,3}(?:package|file|host)
        (?:failed to|unable to) (?:resolve|locate|load|import) (?:\S+ ){0,3}(?:package|file|host)
        no such (?:module|plugin|bean|file)|not recogni[sz]ed as
        missing (?:\w+ )?(?:env|variable|setting|option)|cannot open shared object
        invalid (?:configuration|config|option|connection string|dsn|port)|unknown host
        no suitable driver|feature (?:flag )?(?:\S+ )?(?:is )?(?:disabled|not enabled)|name resolution
        nodename nor servname|uninitialized constant|no (?:default )?(?:region|project)
        bucket not found|wrong (?:endpoint|region)
        """),
    ("resource exhaustion", 0.95, r"""
        out of memory|heap (?:limit|space|out)|no space left
        too many (?:open files|connections|clients|threads)|pool limit
        pool (?:is )?(?:exhausted|timeout)|memory (?:limit|size)|cannot allocate memory
        task timed out after|signal: killed|disk (?:is )?(?:full|quota)|oom[ -]?kill
        remaining connection slots|connection is not available, request timed out after
        resource temporarily unavailable
        unable to (?:acquire|create) (?:a |new )?(?:native )?(?:thread|connection from)
        exceeded (?:\w+ ){0,2}memory|maxmemory|insufficient (?:memory|storage|disk)
        exit(?:ed)?(?: with)?(?: code| status)? 137|can't start new thread|maximum execution time
        function_invocation_timeout|allowed memory
        timed out (?:getting|fetching|acquiring) (?:a |an |the )?(?:new )?connection
        insufficient resources
        no (?:more|free) (?:\w+ )?(?:connections|memory|slots|handles|threads|disk)
        (?:cpu|memory|disk) (?:time )?(?:limit|quota|pressure|exhausted)
        (?:file descriptor|execution|storage) (?:time )?(?:limit|quota|pressure|exhausted)
        memory (?:allocation|exhausted)|slots are reserved|read-only file system
        (?:buffer|queue|thread pool|semaphore|bulkhead) (?:is )?(?:full|exhausted)|evicted|sigkill
        """),
    ("dependency down", 0.9, r"""
        connection refused|bad gateway|upstream connect error|no healthy upstream|gateway time-?out
        (?:server|host|node|worker|replica|backend|database)s? (?:\S+ ){0,2}no longer available
        service (?:is )?(?:temporarily |currently )?unavailable|circuit ?breaker|no route to host
        (?:server|system|database|gateway) (?:is )?(?:temporarily |currently )?unavailable
        network is unreachable|database system is (?:shutting down|starting up|in recovery)
        could not connect to|(?:unable|failed) to connect|under maintenance|down for maintenance
        no (?:nodes|brokers|servers?|hosts?) (?:\w+ )?available|host is down|code = Unavailable
        all (?:shards|hosts|nodes|backends) (?:failed|are down)|server selection|is (?:down|offline)\b
        web server is down|origin is unreachable|loading the dataset in memory
        (?:can't|cannot) connect to
        (?:nodes|brokers|hosts|servers|replicas) (?:are|is) (?:un|not )?available|actively refused
        no listener
        (?:peer|host|server|target) (?:is )?(?:unreachable|not reachable|not responding|unavailable)
        fetch failed|circuit (?:\w+ )?(?:is )?(?:now )?open|communications link failure
        (?:connection|connect) (?:attempt )?failed|not accepting connections
        (?:starting|shutting) (?:up|down)|read ?only (?:mode|replica)|scheduled maintenance
        503 service|backend (?:fetch|error|unavailable|failure)|target (?:is )?down|master is down
        cluster (?:is )?(?:down|not available)|(?:cannot|can't|could not|unable to) reach
        upstream (?:\w+ )?(?:timed|time)[ -]?out
        """),
    ("bug", 0.85, r"""
        cannot read (?:property|properties) of|is not a function|is not defined\b|nil pointer dereference
        undefined method|object reference not set|'NoneType' object|division by zero|divide by zero
        index out of (?:range|bounds)|called `(?:Option|Result)::unwrap
        undefined (?:array key|index|variable|offset)|on null\b|segmentation fault|maximum call stack
        stack level too deep|stack overflow|assertion (?:\S+ )?failed|null pointer|cannot be cast to
        no (?:function|case|cond|try|with|if) clause|no match of right[ -]hand side|bad argument in arithmetic
        is not iterable|not subscriptable|positional arguments?\b|unhandled case|unreachable code
        because \S{1,80} is null|not all code paths|undefined is not|local variable|undefined local
        internal error: entered unreachable|sequence contains no|no value present|list index
        infinite recursion|all goroutines are asleep|undefined array key|unsupported operand
        invalid cast|use of (?:nil|moved|uninitialized)
        (?:nil|null|undefined) (?:object|reference|map|pointer)|not callable|has no attribute
        is null or undefined|missing \d+ required|cannot access local
        (?:should|must) (?:never|not) happen|todo: implement|unexpected state|invariant
        """),
)  # fmt: skip
