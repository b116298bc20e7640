/* peer.c - see peer.h. */
#include "peer.h"

struct peer peer_start(struct rig *r, int l, int netns, const char *commands, const char *procs)
{
	struct peer p = {.pid = fork()};
	socklen_t len = sizeof(p.cookie);
	char byte = 0;

	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail */
		if (netns >= 0 ? setns(netns, CLONE_NEWNET) : commands && unshare(CLONE_NEWNET))
			_exit(1);
		close_range(3, ~0U, 0); /* the broker's lock is not for it */
		if (procs)
			rig_file(procs, "0");
		if (commands && *commands && system(commands)) /* NOLINT(cert-env33-c) */
			_exit(2);
		int c = rig_connect(rig_mount(r, "socket"));
		if (c < 0 || write(c, "x", 1) != 1)
			_exit(3);
		pause();
		_exit(0);
	}
	do
		p.accepted = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	while (p.accepted < 0 && errno == EAGAIN && !waitpid(p.pid, NULL, WNOHANG));
	assert_true(p.accepted >= 0);
	assert_int_equal(read(p.accepted, &byte, 1), 1);
	if (getsockopt(p.accepted, SOL_SOCKET, SO_NETNS_COOKIE, &p.cookie, &len))
		assert_int_equal(errno, ENOPROTOOPT); /* before 5.14 */
	return p;
}

struct peer peer_new(struct rig *r, int l, const char *commands)
{
	return peer_start(r, l, -1, commands, NULL);
}

void peer_kill(struct peer *p)
{
	if (p->pid > 0) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
	}
	p->pid = 0;
}

void peer_end(struct peer *p)
{
	peer_kill(p);
	close(p->accepted);
}

int make_listener(struct rig *r)
{
	rig_add(r);
	return rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
}

struct rig_ask peer_of(const struct uuid *pod, int fd)
{
	return (struct rig_ask){.op = LINK_PEER_OF, .pod = pod, .fd = fd};
}
