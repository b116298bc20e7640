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


def in_place(new, file):
    file.write_text(new.read_text())


def write(folder, place=Path.rename, **files):
    for name, text in files.items():
        new = folder / f'{name}.new'
        new.write_text(text)
        new.chmod(0o644)
        place(new, folder / f'{name}.pem')


def write_pair(pod, authority, below='', place=Path.rename):
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = authority.sign(key.public_key(), [x509.UniformResourceIdentifier(mesh.spiffe(pod.ns, pod.sa))],
                          datetime.timedelta(hours=1))
    write(pod.certs / below, place, cert=pem(leaf), key=key_pem(key))
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


def test_file_certificates_of_machines_are_followed_however_they_are_rotated(node):
    """What Envoy does not see by itself: written in place, and a directory link on the way that is repointed."""
    authority = Authority.new('files')
    client, server = node.pod('client'), node.pod('server')
    for pod in (client, server):
        for version in 'v1', 'v2':
            (pod.certs / version).mkdir()
            write(pod.certs / version, root=pem(authority.root))
        (pod.certs / 'current').symlink_to('v1')
    names = {pod: {'certificate': f'file-cert:{pod.certs}/current/cert.pem~{pod.certs}/current/key.pem',
                   'root': f'file-root:{pod.certs}/current/root.pem'} for pod in (client, server)}
    before = {pod: write_pair(pod, authority, 'v1') for pod in names}
    node.istiod.set(client.id, **mesh.client(server, **names[client]))
    node.istiod.set(server.id, **mesh.server([client], **names[server]))
    node.agentd.settings['certificate_directories'] = str(node.dir)
    node.agentd.start()
    server.start_app(mesh.APP)
    for pod in names:
        pod.start_envoy().wait_ready()
    wait_for('an answer', lambda: client.netns.json(mesh.OUTBOUND))
    assert {pod: serials(pod) for pod in names} == {pod: {serial} for pod, serial in before.items()}
    load = client.load(mesh.OUTBOUND)
    overwritten = {pod: write_pair(pod, authority, 'v1', in_place) for pod in names}
    for pod in names:
        wait_for('Envoy to take what was written in place', lambda p=pod: serials(p) == {overwritten[p]})
    behind = {pod: write_pair(pod, authority, 'v2') for pod in names}
    for pod in names:
        (pod.certs / 'next').symlink_to('v2')
        (pod.certs / 'next').rename(pod.certs / 'current')
        wait_for('Envoy to take what the link leads to', lambda p=pod: serials(p) == {behind[p]})
    load.more(20)
    counts = load.stop()
    assert counts['failed'] == 0, counts


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
