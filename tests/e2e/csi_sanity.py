"""csi-sanity against agentd: python3 -m tests.e2e.csi_sanity PROGRAM   (`make test-csi` builds and runs it)

All specs that apply to a driver of nodes only (kubelet-csi.md 4); which are left out is said there, too.
"""
import json
import os
import subprocess
import sys

from . import run
from .csi import VOLUME, CsiNode, tokens
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
    with run.run() as made:
        node = CsiNode(*made)
        try:
            status, said, specs = sanity(node, os.path.abspath(program))
        finally:
            node.remove()
        counts = {s: 0 for s in ('passed', 'failed', 'skipped')}
        for spec in specs:
            name = ' '.join([*spec['ContainerHierarchyTexts'], spec['LeafNodeText']])
            if spec['State'] == 'skipped' and not run_at_all(spec):
                continue
            counts['passed' if spec['State'] == 'passed' else 'skipped' if spec['State'] == 'skipped' else 'failed'] += 1
            print(f'{spec["State"]:<8} {name}')
    failed = bool(status or counts['failed'] or node.agentd.complaints() or counts['passed'] != SPECS)
    if failed:
        print(said, *node.agentd.complaints(), sep='\n')
    print(f'csi-sanity: {counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped '
          f'(of {SPECS} that apply)')
    return int(failed)


def run_at_all(spec):
    """Not left out by focus or skip."""
    return bool(spec.get('StartTime', '').strip('0001-T:Z'))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
