"""csi-sanity against agentd: python3 -m tests.e2e.csi_sanity PROGRAM   (`make test-csi` builds and runs it)

All specs that apply to a driver of nodes only (kubelet-csi.md 4); which are left out is said there, too.
"""
import collections
import json
import os
import subprocess
import sys

from . import netns, run
from .csi import CsiNode, tokens
from .pod import HERE
from .run import Process, wait_for

FOCUS = 'Identity Service|Node Service Node(GetCapabilities|GetInfo|PublishVolume|UnpublishVolume)'
SKIP = 'single node multi writer'
SPECS = 11


def sanity(node, program):
    """(exit status, report)"""
    node.agentd.start()
    pod = node.csi_pod('sanity', created=False)
    mounts = pod.target.parent
    mounts.parent.mkdir(parents=True)
    directory = node.dir / 'sanity'
    directory.mkdir()
    context = {**pod.publish()[1]['volume_context'], **tokens(pod.token())}
    (directory / 'context.json').write_text(json.dumps(context))
    Process(node.inside(sys.executable, '-m', 'tests.kubelet', 'sanity', directory, node.agentd.run / 'csi.sock'),
            directory / 'log', node.cgroup('sanity'))
    wait_for('the controller', lambda: (directory / 'controller.sock').exists())
    report = directory / 'report.json'
    r = subprocess.run(node.inside(
        program, '--csi.endpoint', f'unix://{directory}/node.sock', '--csi.controllerendpoint',
        f'unix://{directory}/controller.sock', '--csi.mountdir', mounts, '--csi.checkpathcmd', HERE / 'csi_path',
        '--ginkgo.focus', FOCUS, '--ginkgo.skip', SKIP, '--ginkgo.json-report', report, '--ginkgo.no-color'),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
    left = node.mounts()
    if left:
        return 1, f'{r.stdout}\nleft mounted: {left}', []
    return r.returncode, r.stdout, json.loads(report.read_text())[0]['SpecReports']


def main(program):
    with netns.own(), run.run() as made:
        node = CsiNode(*made)
        try:
            status, said, specs = sanity(node, os.path.abspath(program))
        finally:
            node.remove()
        complaints, counts = [*node.agentd.complaints(), *node.leaks()], collections.Counter()
        for spec in specs:
            if spec['State'] == 'pending' or spec['State'] == 'skipped' and not spec.get('Failure', {}).get('Message'):
                continue  # left out by the focus
            counts[spec['State']] += 1
            print(f'{spec["State"]:<8}', *spec['ContainerHierarchyTexts'], spec['LeafNodeText'])
    failed = bool(status or complaints or counts != {'passed': SPECS})
    if failed:
        print(said, *complaints, sep='\n')
    print(f'csi-sanity, of the {SPECS} specs that apply: {counts["passed"]} passed, '
          f'{sum(counts.values()) - counts["passed"] - counts["skipped"]} failed, {counts["skipped"]} skipped')
    return int(failed)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
