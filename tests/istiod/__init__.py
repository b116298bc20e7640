"""A control plane for tests and `make run`: what istiod is to a sidecar, and a journal of what it saw.

Independent of agentd's own code: Python's grpcio, protobuf and cryptography do the work.  The rules
and texts it follows are those measured on the real istiod (istio-agent.md 4.5, 13; istiod-live.md 4-5).

    __main__.py   command line: serve | token | ctl
    server.py     puts the parts together
    listener.py   the port: TLS, how connections are greeted and ended
    doorman.py    client certificates, verified if given (serve --client-certificates)
    gate.py       pauses, delays, failures, istiod's limits: what each call passes
    control.py    the control socket: all of it can be switched while it runs
    ads.py        AggregatedDiscoveryService, state of the world and delta
    resources.py  the files of Envoy resources, watched
    nodes.py      what the first request's node must look like
    csr.py        IstioCertificateService
    bad_answers.py  CSR answers that no client may take
    ca.py         the certificate authorities and the server's own certificate
    tokens.py     Kubernetes-like service-account tokens: issued and checked
    journal.py    DIR/journal.jsonl
    messages.py   Istio's own protobuf messages
"""
