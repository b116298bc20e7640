"""Service-account tokens as Kubernetes makes them: issued for tests, checked at every stream and CSR.

Signed with P-256, which an API server may be told to do: an RSA key costs each control plane 0.2 s of a core."""
import time
import uuid
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ALGORITHM = 'ES256'
AUDIENCE = 'istio-ca'
ISSUER = 'https://kubernetes.default.svc.cluster.local'


class Refused(Exception):
    """Why a token is not accepted.  For the journal: istiod tells its client nothing (istiod-live.md 4)."""


class Tokens:
    def __init__(self, directory):
        path = Path(directory) / 'issuer-key.pem'
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption())
            new = path.with_suffix(f'.{uuid.uuid4().hex}')
            new.touch(0o600)
            new.write_bytes(pem)
            new.rename(path)
        self._key = serialization.load_pem_private_key(path.read_bytes(), None)

    def issue(self, ns, sa, pod, uid, ttl=3600, audience=AUDIENCE, account='', age=0):
        """`uid` None: of no pod, as `istioctl x workload entry configure` makes it."""
        now = int(time.time())
        return jwt.encode({
            'aud': [audience], 'iss': ISSUER, 'sub': f'system:serviceaccount:{ns}:{sa}',
            'iat': now - age, 'nbf': now - 60, 'exp': now + ttl, 'jti': str(uuid.uuid4()),
            'kubernetes.io': {
                'namespace': ns,
                'serviceaccount': {'name': sa, 'uid': str(uuid.uuid5(uuid.NAMESPACE_DNS, f'{ns}.{sa}{account}'))},
                **({'pod': {'name': pod, 'uid': uid}} if uid else {}),
            },
        }, self._key, algorithm=ALGORITHM)

    def check(self, metadata, cluster_ids):
        """Who opens this call: the claims under `kubernetes.io`.  Only the first header counts."""
        headers = {}
        for key, value in metadata:
            headers.setdefault(key, value)
        if headers.get('clusterid', '') not in ('', *cluster_ids):
            raise Refused(f'unknown clusterid {headers["clusterid"]!r}')
        scheme, _, token = headers.get('authorization', '').partition(' ')
        if scheme != 'Bearer':
            raise Refused('no authorization header' if not scheme else 'not a Bearer token')
        try:
            claims = jwt.decode(token, self._key.public_key(), algorithms=[ALGORITHM],
                                audience=AUDIENCE, issuer=ISSUER, options={'require': ['exp', 'sub']})
            who = claims['kubernetes.io']
            if claims['sub'] != f'system:serviceaccount:{who["namespace"]}:{who["serviceaccount"]["name"]}':
                raise Refused('not a service account')
        except (jwt.InvalidTokenError, KeyError, TypeError) as e:
            raise Refused(f'{type(e).__name__}: {e}') from e
        return who
