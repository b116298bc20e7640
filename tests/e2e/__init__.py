"""End-to-end: agentd with real Envoys in pods that the tests make themselves.

    __main__.py   what runs the files, each in a process of its own
    conftest.py   fixtures; what a failed test leaves to read
    run.py        names of everything made, processes, waiting; sweeping what a killed run left
    netns.py      sockets and calls inside another network namespace; the one of a test file
    node.py       one node: temp directory, control plane, agentd, a network for its pods
    pod.py        one pod: netns, cgroup, manifest, token, app, Envoy
    container     the shell script that gives an Envoy its own root directory
    mesh.py       the Envoy resources of a client pod and a server pod
    app.py        the application: an HTTP server that tells who called, and a client that counts
    crowd.py      stand-ins for many Envoys in one process, on h2.py, the least HTTP/2 that does
    direct.py     Python straight at the control plane
    clients.py    Python in Envoy's place: ADS and SDS over a pod's sockets
"""
