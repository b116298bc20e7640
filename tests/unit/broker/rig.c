/* rig.c - see rig.h. */
#include "rig.h"
#include <sys/epoll.h>

const struct uuid rig_pod = {{1, 2, 3}}, rig_other = {{9, 8, 7}};
const char rig_pod_text[] = "01020300-0000-0000-0000-000000000000";

int rig_attach(struct rig *r)
{
	int pair[2];
	struct err e = {0};

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	r->fd = pair[1];
	if (r->sndbuf)
		assert_int_equal(
		    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &r->sndbuf, sizeof(int)), 0);
	if (broker_attach(r->b, pair[0], &e))
		fail_msg("%s", e.msg);
	return pair[1];
}

bool rig_receive(struct rig *r, int flags, struct link_packet *p, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = p, .iov_len = sizeof(*p)};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(r->fd, &msg, flags | MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (n <= 0)
		return false;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	assert_int_equal(n, sizeof(*p));
	assert_int_equal(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
	if (c) {
		assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof(int)));
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	}
	return true;
}

bool rig_next(struct rig *r, struct link_packet *p, int *fd)
{
	for (int i = 0; i < RIG_TURNS; i++) {
		if (rig_receive(r, MSG_DONTWAIT, p, fd))
			return true;
		broker_turn(r->b, 0);
	}
	return false;
}

struct link_packet rig_expect(struct rig *r, enum link_what what, int *fd)
{
	struct link_packet p;
	int got;

	if (!rig_next(r, &p, &got))
		fail_msg("no packet of kind %d", what);
	assert_int_equal(p.what, what);
	if (fd)
		*fd = got;
	else
		assert_int_equal(got, -1);
	return p;
}

void rig_drain(struct rig *r)
{
	struct link_packet p;
	int fd;

	while (rig_next(r, &p, &fd))
		if (fd >= 0)
			close(fd);
}

void rig_next_worker(struct rig *r)
{
	int admin;

	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	close(admin);
}

void rig_quiet(struct rig *r)
{
	struct link_packet p;
	int fd;

	if (rig_next(r, &p, &fd))
		fail_msg("a packet of kind %d, state %u, name %s", p.what, p.state, p.name);
}

bool rig_is_idle(struct rig *r)
{
	struct epoll_event ev;

	if (epoll_wait(broker_epoll(r->b), &ev, 1, 0))
		broker_turn(r->b, 0);
	return epoll_wait(broker_epoll(r->b), &ev, 1, 0) == 0;
}

void rig_send(struct rig *r, const void *bytes, size_t size, const int *fds, int nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(64 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	assert_int_equal(sendmsg(r->fd, &msg, MSG_NOSIGNAL), size);
}

uint32_t rig_request(struct rig *r, struct rig_ask a)
{
	struct link_request q = {
	    .id = ++r->id, .op = (uint16_t)a.op, .kind = (uint16_t)a.kind, .arg = a.arg};

	if (a.pod)
		q.uid = *a.pod;
	if (r->volume) /* as long as it is: a worker need not end it */
		memcpy(q.volume, r->volume, strnlen(r->volume, sizeof(q.volume)));
	rig_send(r, &q, sizeof(q), &a.fd, a.fd > 0);
	return q.id;
}

struct link_packet rig_ask(struct rig *r, struct rig_ask a, int *fd)
{
	uint32_t id = rig_request(r, a);
	struct link_packet p = rig_expect(r, LINK_REPLY, fd);

	assert_int_equal(p.id, id);
	return p;
}

void rig_do(struct rig *r, struct rig_ask a)
{
	struct link_packet p = rig_ask(r, a, NULL);

	if (p.code)
		fail_msg("operation %d refused: %s", a.op, p.why);
}

void rig_refused(struct rig *r, struct rig_ask a, int code, const char *text)
{
	struct link_packet p = rig_ask(r, a, NULL);

	assert_int_equal(p.code, code);
	if (!strstr(p.why, text))
		fail_msg("\"%s\" lacks \"%s\"", p.why, text);
}

int rig_listen(struct rig *r, const struct uuid *pod, enum link_listener kind)
{
	int fd = -1;
	struct link_packet p = rig_ask(r, (struct rig_ask){LINK_LISTEN, kind, 0, pod, 0}, &fd);

	if (p.code)
		fail_msg("%s", p.why);
	assert_true(fd >= 0);
	return fd;
}

const char *rig_at(const struct rig *r, const char *fmt, ...)
{
	static char paths[4][512];
	static unsigned turn;
	char *out = paths[turn++ % 4];
	va_list ap;
	size_t n = (size_t)sprintf(out, "%s/", r->top);

	va_start(ap, fmt);
	vsnprintf(out + n, sizeof(paths[0]) - n, fmt, ap);
	va_end(ap);
	return out;
}

const char *rig_mount(const struct rig *r, const char *name)
{
	return rig_at(r, "run/pods/%s/mount/%s", rig_pod_text, name);
}

struct stat rig_stat(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st;
}

mode_t rig_mode(const char *path)
{
	return rig_stat(path).st_mode & 07777;
}

void rig_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	fclose(f);
}

void rig_shell(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	if (system(cmd)) /* NOLINT(cert-env33-c) */
		fail_msg("failed: %s", cmd);
}

int rig_memfd(const void *data, size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

struct link_packet rig_next_file(struct rig *r, uint32_t id, char *text, size_t size)
{
	int fd;
	struct link_packet p = rig_expect(r, LINK_FILE, &fd);
	ssize_t n = 0;

	assert_int_equal(p.id, id);
	assert_int_equal(fd >= 0, p.state == LINK_FILE_CONTENT);
	if (fd >= 0) {
		assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
		n = pread(fd, text, size - 1, 0);
		assert_true(n >= 0);
		close(fd);
	}
	text[n] = '\0';
	return p;
}

void rig_expect_content(struct rig *r, uint32_t id, const char *name, const char *text)
{
	char got[4096];
	struct link_packet p = rig_next_file(r, id, got, sizeof(got));

	if (p.state != LINK_FILE_CONTENT)
		fail_msg("state %u: %s", p.state, p.why);
	assert_string_equal(p.name, name);
	assert_string_equal(got, text);
}

void rig_expect_state(
    struct rig *r, uint32_t id, const char *name, enum link_file_state state, const char *why)
{
	char got[4096];
	struct link_packet p = rig_next_file(r, id, got, sizeof(got));

	assert_int_equal(p.state, state);
	assert_string_equal(p.name, name);
	if (!strstr(p.why, why))
		fail_msg("\"%s\" lacks \"%s\"", p.why, why);
}

struct broker *rig_broker(struct rig *r, struct err *e)
{
	if (!r->kept)
		r->kept = broker_fdstore_new();
	return broker_new(&r->o, r->kept, e);
}

void rig_start(struct rig *r)
{
	struct err e = {0};
	const int wanted[] = {LINK_NODE_ADMIN, r->o.kubelet_root ? LINK_NODE_CSI : -1,
	    r->o.metrics ? LINK_NODE_METRICS : -1};
	const int listeners = 1 + (wanted[1] >= 0) + (wanted[2] >= 0);
	struct link_packet p;
	int fd;

	r->b = rig_broker(r, &e);
	if (!r->b)
		fail_msg("%s", e.msg);
	rig_attach(r);
	p = rig_expect(r, LINK_HELLO, NULL);
	assert_int_equal(p.arg, LINK_VERSION);
	assert_int_equal(p.kind, listeners);
	for (int i = 0; i < 3; i++) {
		if (wanted[i] < 0)
			continue;
		p = rig_expect(r, LINK_NODE_LISTENER, &fd);
		assert_int_equal(p.kind, wanted[i]);
		close(fd);
	}
}

void rig_stop(struct rig *r)
{
	broker_free(&r->b);
	broker_fdstore_free(&r->kept);
	close(r->fd);
}

void rig_own_mounts(void)
{
	static bool done;

	if (!done)
		assert_int_equal(
		    unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	done = true;
}

int rig_setup(void **state)
{
	static struct rig r;

	rig_own_mounts();

	memset(&r, 0, sizeof(r));
	strcpy(r.top, "/tmp/brXXXXXX");
	assert_non_null(mkdtemp(r.top));
	snprintf(r.run, sizeof(r.run), "%s/run", r.top);
	snprintf(r.manifests, sizeof(r.manifests), "%s/pods.d", r.top);
	snprintf(r.root, sizeof(r.root), "%s/certs/root.pem", r.top);
	snprintf(r.identities, sizeof(r.identities), "%s/lib/identity", r.top);
	r.o = (struct broker_options){.run = r.run,
	    .identity_dir = r.identities,
	    .manifests = r.manifests,
	    .max_pods = 8,
	    .worker_user = "agentd",
	    .redirect_allow = "",
	    .root_files = {[2] = r.root}};
	rig_start(&r);
	*state = &r;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *r = *state;

	if (r->b)
		rig_stop(r);
	umount2(rig_at(r, "run/state"), MNT_DETACH);
	rig_shell("for d in %s/pods/*; do ! mountpoint -q $d || umount -l $d; done", r->run);
	rig_shell("rm -rf %s", r->top);
	return 0;
}

bool rig_reaches(const char *path, int l)
{
	int c = rig_connect(path);
	int a = c >= 0 ? accept(l, NULL, NULL) : -1;

	close(a);
	close(c);
	return a >= 0;
}

int rig_connect(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		int e = errno;
		close(fd);
		errno = e;
		return -1;
	}
	return fd;
}

void rig_add(struct rig *r)
{
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
}
