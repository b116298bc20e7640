"""What the kubelet puts into NodePublishVolume (section 3b), and where its tokens come from."""
import hashlib
import json
import time

from tests.istiod.tokens import Tokens

from .config import TOKEN_RENEWED_AT

_KEY = 'csi.storage.k8s.io/'
_SINGLE_NODE_WRITER = 1


def volume_id(uid, name):
    return 'csi-' + hashlib.sha256(f'{uid}{name}'.encode()).hexdigest()


class TokenCache:
    """Renewed only when somebody asks and the old one is past 80 % of its life; gone with the kubelet."""

    def __init__(self, config):
        self._config, self._tokens, self._cached = config, Tokens(config.issuer), {}

    def get(self, pod):
        """{token, expirationTimestamp}"""
        now, ttl = time.time(), self._config.token_ttl_s
        made, found = self._cached.get(pod.uid, (0, None))
        jitter = self._config.random.uniform(0, 10) * self._config.scale
        if not found or now > made + min(TOKEN_RENEWED_AT * ttl, 24 * 3600) - jitter:
            found = {'token': self._tokens.issue(pod.namespace, pod.service_account, pod.name, pod.uid, ttl,
                                                 self._config.audience),
                     'expirationTimestamp': time.strftime('%FT%TZ', time.gmtime(now + ttl))}
            self._cached[pod.uid] = now, found
        return found

    def forget(self, uid):
        self._cached.pop(uid, None)


def publish(config, tokens, pod, volume, target):
    """The kubelet's keys win over the pod's own attributes of these names; others it lets pass as they are."""
    context = dict(volume.get('attributes') or {})
    context.update({
        f'{_KEY}pod.name': pod.name, f'{_KEY}pod.namespace': pod.namespace, f'{_KEY}pod.uid': pod.uid,
        f'{_KEY}serviceAccount.name': pod.service_account, f'{_KEY}ephemeral': 'true'})
    token = {f'{_KEY}serviceAccount.tokens': json.dumps({config.audience: tokens.get(pod)})}
    request = {
        'volume_id': volume_id(pod.uid, volume['name']), 'target_path': str(target),
        'volume_capability': {'mount': {}, 'access_mode': {'mode': _SINGLE_NODE_WRITER}},
        'readonly': volume.get('read_only', True), 'volume_context': context}
    if config.tokens_in_secrets:
        request['secrets'] = token
    else:
        context.update(token)
    return request


def unpublish(pod_uid, name, target):
    return {'volume_id': volume_id(pod_uid, name), 'target_path': str(target)}
