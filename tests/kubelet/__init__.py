"""A stand-in for the kubelet of one node, as far as a CSI driver can see it: kubelet-csi.md to the letter.

    python3 -m tests.kubelet run DIR             until SIGTERM; DIR/config.json says how (config.py)
    python3 -m tests.kubelet call SOCKET         stdin: JSON list of [method, request, seconds]; prints what came of each
    python3 -m tests.kubelet sanity DIR SOCKET   what csi-sanity needs beside the driver (controller.py)

`run` is one process in the mount namespace that is the node's, as root, in a cgroup outside the pods' tree.  It has
no API server but the directory DIR/api, one JSON file for each pod (`podspec.py`): written (and renamed) by the test,
read here, also by the next kubelet after a restart, and removed here when a deleted pod is gone.  A test that
removes the file itself has deleted the pod by force.  What the kubelet sees and does is in DIR/journal.jsonl, as
tests/istiod writes its own; DIR/state.json says how things are now.  DIR/network-not-ready: while that file is
there no pod's cgroup is made (section 3a), DIR/runtime is containerd's memory of sandboxes.

    config.py    what there is to set; all times, and their common factor
    messages.py  the wire (section 5)
    client.py    a call on a connection of its own
    plugins.py   the registration directory: GetInfo, NodeGetInfo, Notify; who is registered
    volumes.py   the volume manager: publish, republish, back-off, unpublish, reconstruction from disk
    requests.py  what is in NodePublishVolume; the token cache
    pods.py      the pod workers: cgroup, directories, sandbox, containers, and the end of each
    inotify.py   how the registration directory is watched
    runtime.py   containerd's part: network namespace, pause process, containers
    server.py    one of each, and what is written for the test

Not modelled: other volumes than CSI ones, probes, restarts of containers, sub-directories of the registry.
"""
