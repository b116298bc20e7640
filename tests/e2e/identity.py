"""A pod that lives by its certificate, as machines do."""
import datetime
import os
import shutil

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.istiod.ca import CA, key_pem, pem

from . import mesh
from .run import sh, wait_for


def prepared(node):
    """A node whose control plane takes client certificates."""
    node.identities = node.dir / 'identity'
    node.agentd.plane['trust_domain'] = mesh.TRUST_DOMAIN
    node.operators_ca = CA(node.istiod.dir)
    return node


class Identity:
    """A pod with `identity: certificate`."""

    def __init__(self, node, name, token=True, **fields):
        self.node, self.pod = node, node.pod(name, manifest=False)
        self.pod.write_token()
        if not token:
            self.pod.remove_token()
        self.pod.write_manifest(identity='certificate', **fields)
        self.kept = node.identities / f'{self.pod.uid}.pem'
        self.identity = f'ns/{self.pod.ns}/sa/{self.pod.sa}'

    def provision(self, authority='a', uris=None, days=1, mode=0o600):
        """A pair as an operator's own CA makes it, beside the token."""
        ca = self.node.operators_ca
        key = ec.generate_private_key(ec.SECP256R1())
        uris = uris or [f'spiffe://{mesh.TRUST_DOMAIN}/{self.identity}']
        leaf = ca._authority(authority).sign(
            key.public_key(), [x509.UniformResourceIdentifier(u) for u in uris], datetime.timedelta(days=days))
        folder = self.node.agentd.manifests / self.pod.uid
        for name, text, bits in (('cert-chain.pem', pem(leaf), 0o644), ('key.pem', key_pem(key), mode)):
            new = folder / f'{name}.new'
            new.write_text(text)
            new.chmod(bits)
            new.rename(folder / name)
        return f'{leaf.serial_number:x}'

    def issued(self, by):
        return self.node.istiod.issued(identity=self.identity, by=by)

    def shown(self):
        """What agentctl certs says of it."""
        return next((i for i in self.node.agentd.ctl('certs').get('identities', ()) if i['pod'] == self.pod.label), None)

    def wait_credential(self, name):
        wait_for(f'{self.pod.label} to show its {name}', lambda: (self.shown() or {}).get('credential') == name)

    def gaps(self):
        """From the end of each stream to the beginning of the next."""
        ends = {r['stream']: r['time'] for r in self.node.istiod.journal('close')}
        opens = self.streams()
        return [later['time'] - ends[one['stream']] for one, later in zip(opens, opens[1:]) if one['stream'] in ends]

    def streams(self):
        return self.node.istiod.journal('open', identity=self.identity)


def reboot(node):
    """All that is not on disk is lost."""
    node.agentd.kill()
    state = node.agentd.run / 'state'
    if os.path.ismount(state):
        sh('umount', '--lazy', state)
    shutil.rmtree(node.agentd.run)
    node.agentd.start()
