"""What agentd does when nothing happens, and file certificates, which are Envoy's own business."""
import datetime
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.istiod.ca import Authority, key_pem, pem

from . import mesh
from .conftest import measured
from .run import wait_for
from .test_traffic import serials


def write(folder, **files):
    for name, text in files.items():
        new = folder / f'{name}.new'
        new.write_text(text)
        new.chmod(0o644)
        new.rename(folder / f'{name}.pem')


def write_pair(pod, authority):
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = authority.sign(key.public_key(), [x509.UniformResourceIdentifier(mesh.spiffe(pod.ns, pod.sa))],
                          datetime.timedelta(hours=1))
    write(pod.certs, cert=pem(leaf), key=key_pem(key))
    return f'{leaf.serial_number:x}'


def test_file_certificates_are_followed_by_envoy(node):
    names = {'certificate': 'file-cert:/etc/certs/cert.pem~/etc/certs/key.pem', 'root': 'file-root:/etc/certs/root.pem'}
    authority = Authority.new('files')
    client, server = node.pod('client'), node.pod('server')
    before = {}
    for pod in (client, server):
        write(pod.certs, root=pem(authority.root))
        before[pod] = write_pair(pod, authority)
    node.istiod.set(client.id, **mesh.client(server, **names))
    node.istiod.set(server.id, **mesh.server([client], **names))
    node.agentd.start()
    server.start_app(mesh.APP)
    for pod in (client, server):
        pod.start_envoy().wait_ready()
    assert mesh.spiffe('demo', 'client') in wait_for('an answer', lambda: client.netns.json(mesh.OUTBOUND))['xfcc']
    for pod in (client, server):
        assert serials(pod) == {before[pod]}
        has = node.agentd.ctl('certs', pod.label, '--envoy')['envoy']
        assert {c['serial'].lstrip('0') for c in has if c['kind'] == 'chain'} == {before[pod]}
        assert node.agentd.ctl_text('certs', pod.label, '--envoy')[0] == 0

    load = client.load(mesh.OUTBOUND)
    node.agentd.stop()  # not needed for this
    for pod in (client, server):
        after = write_pair(pod, authority)
        wait_for('Envoy to take the new pair', lambda p=pod, a=after: serials(p) == {a})
    counts = load.stop()
    assert counts['failed'] == 0, counts
    assert not (node.agentd.log.read_text().count('BEGIN'))


def switches(pids):
    """Context switches of all threads so far."""
    states = [t for pid in pids for t in Path(f'/proc/{pid}/task').glob('*/status')]
    return sum(int(line.split()[1]) for t in states for line in t.read_text().splitlines() if 'ctxt_switches' in line)


def test_nothing_happens_when_idle(pair, seconds=5):
    client, _ = pair
    node = client.node
    for _ in range(3):
        client.netns.http(mesh.OUTBOUND)

    def idle():
        """Whatever is asked again and again is asked in this time, too."""
        seen, before = len(node.istiod.journal()), switches(node.agentd.cgroup.pids())
        time.sleep(seconds)
        measured.append(f'{(switches(node.agentd.cgroup.pids()) - before) / seconds:.1f} '
                        'context switches of agentd per idle second (all threads)')
        return len(node.istiod.journal()) == seen
    wait_for(f'{seconds} seconds in which istiod hears nothing', idle)
