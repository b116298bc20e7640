"""Requests of the client to the server, one after the other, counted."""
from .waiting import wait_for

totals = [0, 0]  # of a whole run: asked, failed
_LOOP = '''rm -f /tmp/load.*; (while [ ! -e /tmp/load.stop ]; do
  if timeout 5 wget -q -O /dev/null http://web.demo/ 2>/tmp/load.error; then echo ok
  else echo failed; cat /tmp/load.error >>/tmp/load.why; fi; sleep 0.05
done >/tmp/load.n; touch /tmp/load.end) >/dev/null 2>&1 </dev/null &'''


class Load:
    """A context; afterwards `ok` and `failed` are numbers."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.ok = self.failed = None

    def _in(self, script):
        return self._cluster.exec('deploy/client', 'app', 'sh', '-c', script)

    def _count(self):
        lines = self._in('cat /tmp/load.n').split()
        self.ok, self.failed = lines.count('ok'), lines.count('failed')
        return len(lines)

    def more(self, n):
        """Wait for n more answers, whether good or bad."""
        def counted():
            try:
                return self._count()
            except RuntimeError:  # the kubelet is away
                return 0
        goal = wait_for('the count', counted) + n
        wait_for(f'{n} more answers', lambda: counted() >= goal)

    def __enter__(self):
        self._in(_LOOP)
        self.more(1)
        return self

    def __exit__(self, *_):
        def stop():
            try:
                return self._in('touch /tmp/load.stop /tmp/load.why; while [ ! -e /tmp/load.end ]; do sleep 0.1; done; '
                                'echo; cat /tmp/load.why')
            except RuntimeError:
                return None
        why = wait_for('the load to end', stop)
        self._count()
        totals[0] += self.ok + self.failed
        totals[1] += self.failed
        print(f'load: {self.ok} answered, {self.failed} failed; {sorted(set(why.split(chr(10))) - {""})}')
