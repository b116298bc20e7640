/* broker_requests_fuzz.c - a hostile worker: any bytes as requests, with any fds, against a real
 * broker core.
 *
 * The input is a program of records {what, a, b, c ...}: well-formed requests with odd arguments,
 * raw packets, and acts of root beside it (files written, swapped, replaced by FIFOs and links),
 * all in a directory of its own under /tmp.  After each input: the broker has closed every fd, is
 * in its own network namespace, has answered exactly what was asked, in order, and has done nothing
 * but what it may do (broker_effects.h).
 *
 * LINK: tests/fake/apart.c tests/fake/disk.c tests/unit/open_fds.c tests/fuzz/broker_effects.c
 */
#include "broker/base/fdstore.h"
#include "broker/requests/broker.h"
#include "broker_effects.h"
#include "common/err.h"
#include "tests/unit/open_fds.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS_MAX = 64, NFDS = 10, TURNS = 3 };
enum { SILENT }; /* the id of a request without an answer */

#define CSI "kubelet/pods/01000000-0000-0000-0000-000000000000/volumes/kubernetes.io~csi"
static const char volume[] = CSI "/a";
static char top[32], run[64], manifests[64], root[64], kubelet[64], identities[64];
static struct broker_options options = {.worker_user = "1338",
    .redirect_allow = "",
    .redirect_cgroup = "",
    .run = run,
    .manifests = manifests,
    .identity_dir = identities,
    .kubelet_root = kubelet,
    .max_pods = 3,
    .root_files = {[1] = root}};
static int given[NFDS]; /* what a worker might send along */
static ino_t home;
static pid_t owner;
static bool roots_own; /* <run> is not as the broker made it */

struct input {
	const uint8_t *data;
	size_t size;
};

struct session {
	struct broker *b;
	int sock;
	enum broker_turned state;
	uint32_t asked, answered; /* ids of well-formed requests count up */
	bool told[RECORDS_MAX + 1];
	bool late[RECORDS_MAX + 1]; /* its answer may come after those of later ones */
};

static uint8_t next(struct input *in)
{
	if (!in->size)
		return 0;
	in->size--;
	return *in->data++;
}

static ino_t netns(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) ? 0 : st.st_ino;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	if (ftw->level && remove(path) && errno != EBUSY) /* the state's tmpfs stays mounted */
		return errno != ENOTEMPTY;
	return 0;
}

/* What the last input had mounted: volumes, and file systems of pods. */
static void unmount_volumes(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], point[512], pods[80];

	snprintf(pods, sizeof(pods), "%s/pods/", run);
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*s %*s %*s %511s", point) == 1 &&
		    (!strncmp(point, kubelet, strlen(kubelet)) ||
			!strncmp(point, pods, strlen(pods))) &&
		    umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW))
			abort();
	if (f)
		fclose(f);
}

/* The kubelet's, for one volume of one pod. */
static void make_kubelet(void)
{
	char path[160];

	for (size_t n = 0; n < strlen(volume); n++) {
		n += strcspn(volume + n, "/");
		snprintf(path, sizeof(path), "%s/%.*s", top, (int)n, volume);
		if (mkdir(path, 0750))
			abort();
	}
	snprintf(path, sizeof(path), "%s/plugins_registry", kubelet);
	if (mkdir(path, 0750))
		abort();
}

/* No more than `n`, and ours are among them.  Another one may be open for a moment: libFuzzer has a
 * thread, and a symbolizer behind pipes. */
static bool has_fds(int n)
{
	for (int i = 0; i < NFDS; i++)
		if (fcntl(given[i], F_GETFD) < 0)
			return false;
	for (int ms = 0; ms < 2000 && open_fds() > n; ms++)
		usleep(1000);
	return open_fds() <= n;
}

static void clean(void)
{
	unmount_volumes();
	nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void clean_at_exit(void)
{
	char state[80];

	if (getpid() != owner)
		return;
	snprintf(state, sizeof(state), "%s/state", run);
	umount2(state, MNT_DETACH);
	effects_unwatch();
	umount2(top, MNT_DETACH);
	rmdir(top);
}

static int memory(int seals, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, seals))
		abort();
	return fd;
}

/* A stream whose sockets were made in another network namespace. */
static int foreign_stream(void)
{
	int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), pair[2];

	if (here < 0 || unshare(CLONE_NEWNET) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    setns(here, CLONE_NEWNET))
		abort();
	close(here);
	return pair[0];
}

static int one_of_pair(int type)
{
	int pair[2];

	if (socketpair(AF_UNIX, type, 0, pair))
		abort();
	return pair[0];
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

	(void)argc;
	(void)argv;
	if (geteuid() != 0) {
		fprintf(stderr, "broker_requests_fuzz: needs root\n");
		exit(0);
	}
	/* Mounts go with the process. */
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		abort();
	strcpy(top, "/tmp/bfXXXXXX");
	if (!mkdtemp(top) || mount("fuzz", top, "tmpfs", 0, NULL)) /* many inputs a second */
		abort();
	owner = getpid();
	effects_watch();
	atexit(clean_at_exit);
	snprintf(run, sizeof(run), "%s/run", top);
	snprintf(manifests, sizeof(manifests), "%s/pods.d", top);
	snprintf(root, sizeof(root), "%s/certs/root.pem", top);
	snprintf(kubelet, sizeof(kubelet), "%s/kubelet", top);
	snprintf(identities, sizeof(identities), "%s/identity", top);
	given[0] = memory(seals, 10);
	given[1] = memory(0, 10);
	given[2] = memory(seals, LINK_FILE_SIZE_MAX + 1);
	given[3] = foreign_stream();
	given[4] = foreign_stream();
	given[5] = one_of_pair(SOCK_STREAM);
	given[6] = one_of_pair(SOCK_DGRAM);
	given[7] = open("/dev/null", O_RDWR | O_CLOEXEC);
	given[8] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	given[9] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	home = netns();
	return 0;
}

/* --- what the broker says ------------------------------------------------------------------------
 */

/* Each is answered once, and after all before it but the late ones. */
static void check_answer(struct session *s, uint32_t id)
{
	if (id > s->asked || s->told[id])
		abort();
	s->told[id] = true;
	s->answered++;
	for (uint32_t i = 1; i < id && !s->late[id]; i++)
		if (!s->told[i] && !s->late[i])
			abort();
}

static void check_packet(struct session *s, const struct link_packet *p, bool with_fd)
{
	if (memchr(p->why, 0, sizeof(p->why)) == NULL ||
	    memchr(p->name, 0, sizeof(p->name)) == NULL || p->naddresses > LINK_ADDRESSES_MAX)
		abort();
	if (p->what == LINK_REPLY && p->id != SILENT)
		check_answer(s, p->id);
	if (p->what == LINK_REPLY && with_fd && p->code)
		abort();
	if (p->what == LINK_FILE && with_fd != (p->state == LINK_FILE_CONTENT))
		abort();
}

static void listen_to_broker(struct session *s)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct link_packet p;
	struct iovec iov = {.iov_base = &p, .iov_len = sizeof(p)};

	for (;;) {
		struct msghdr msg = {.msg_iov = &iov,
		    .msg_iovlen = 1,
		    .msg_control = &control,
		    .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(s->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n <= 0)
			return;
		const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		if (n != sizeof(p) || (msg.msg_flags & MSG_CTRUNC))
			abort();
		check_packet(s, &p, c != NULL);
		if (c) {
			int fd;
			memcpy(&fd, CMSG_DATA(c), sizeof(int));
			if (p.what == LINK_FILE || p.what == LINK_STATE || p.what == LINK_VOLUME)
				effects_check_memory(fd);
			else if (!effects_is_pods_socket(fd, home))
				effects_check_listener(fd, run);
			if (p.what == LINK_REPLY && p.code == 0 && s->answered % 5 == 0)
				shutdown(fd, s->answered % 2 ? SHUT_RD : SHUT_RDWR);
			close(fd);
		}
	}
}

static void turn(struct session *s)
{
	for (int i = 0; i < TURNS && s->state == BROKER_SERVING; i++)
		s->state = broker_turn(s->b, 0);
}

/* --- what the worker sends -----------------------------------------------------------------------
 */

/* Its id counts only if an answer has to come. */
static uint32_t next_id(struct session *s, unsigned op)
{
	bool known = op > 0 && op < LINK_OP_END;

	if (known && ops_row(op)->answer == LINK_SILENT)
		return SILENT;
	s->late[++s->asked] = op == LINK_IDENTITY_PUT;
	return s->asked;
}

static void send_bytes(struct session *s, const void *bytes, size_t size, int nfds, unsigned which)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		int fds[8];
		for (int i = 0; i < nfds; i++)
			fds[i] = given[(which + (unsigned)i) % NFDS];
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	if (sendmsg(s->sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN &&
	    memcmp(bytes, &(uint32_t){SILENT}, sizeof(uint32_t)) != 0)
		s->asked--; /* it was not sent after all */
}

static void name_volume(struct link_request *q, uint8_t which)
{
	static const char *const names[] = {"a", "b", "", "..", "a/../a", "A",
	    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	const char *name = which < 0xc0 ? "a" : names[which % (sizeof(names) / sizeof(*names))];

	memcpy(q->volume, name, strnlen(name, sizeof(q->volume)));
}

static void send_request(struct session *s, struct input *in)
{
	struct link_request q = {.id = 0};
	uint8_t op = next(in), arg = next(in);

	q.op = 1 + op % (LINK_OP_END - 1);
	q.id = next_id(s, q.op);
	q.kind = next(in) % (LINK_FOLLOWED_END + 1); /* the longest list of them */
	q.arg = arg < 0xf0 ? arg % 40 : 0xffffff00u + arg;
	q.uid.bytes[0] = q.state_id[0] = next(in) % 5;
	if (q.op >= LINK_PUBLISH)
		name_volume(&q, next(in));
	send_bytes(s, &q, sizeof(q), ops_row(q.op)->nfds, op / LINK_OP_END);
}

static void send_raw(struct session *s, struct input *in)
{
	uint8_t bytes[128] = {0}, size = next(in) % sizeof(bytes), fds = next(in);
	struct link_request q;
	uint32_t id;

	for (uint8_t i = 0; i < size; i++)
		bytes[i] = next(in);
	memcpy(&q, bytes, sizeof(q));
	id = next_id(s, size == sizeof(q) ? q.op : 0);
	if (size == sizeof(q)) /* it may happen to be well-formed */
		memcpy(bytes, &id, sizeof(id));
	send_bytes(s, bytes, size, fds % 9 < 8 ? fds % 9 : 0, fds / 9);
}

/* --- what root does ------------------------------------------------------------------------------
 */

/* Root's own acts stay inside. */
static bool leads_outside(const char *path)
{
	char parent[192], real[PATH_MAX];

	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
	return realpath(parent, real) && !strncmp(real, effects_dir, strlen(effects_dir));
}

static void touch_file(struct input *in)
{
	static const char *const names[] = {"certs/root.pem", "pods.d/a.yaml", "pods.d/b.yaml",
	    "pods.d/01000000-0000-0000-0000-000000000000/token", "certs/..v1/root.pem",
	    "pods.d/02000000-0000-0000-0000-000000000000", "certs/..data", "pods.d", "certs",
	    "pods.d/01000000-0000-0000-0000-000000000000", "certs/..v1", "run/pods", CSI "/a",
	    CSI "/a/mount", CSI "/a/vol_data.json", CSI "/b",
	    "kubelet/plugins_registry/agentd.node.mesh-reg.sock", "kubelet/plugins_registry",
	    "pods.d/01000000-0000-0000-0000-000000000000.yaml",
	    "pods.d/01000000-0000-0000-0000-000000000000/redirect-allow"};
	uint8_t which = next(in), what = next(in);
	const char *name = names[which % (sizeof(names) / sizeof(names[0]))];
	const bool stays = !strncmp(name, "run", 3) || !strncmp(name, "kubelet", 7);
	char path[192], aside[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	if (leads_outside(path))
		return;
	roots_own |= !strncmp(name, "run", 3);
	switch (what % 8) {
	case 0:
	case 1:
		fd = open(
		    path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
		if (fd >= 0 && write(fd, &what, 1) != 1 && errno != EAGAIN)
			abort();
		if (fd >= 0)
			close(fd);
		break;
	case 2:
		mkdir(path, 0755);
		break;
	case 3:
		remove(path);
		break;
	case 4:
		(void)!symlink(what & 8    ? "..v1"
			       : what & 16 ? effects_secret
			       : what & 32 ? effects_dir
					   : "../certs/root.pem",
		    path);
		break;
	case 5:
		mkfifo(path, 0600);
		break;
	case 6:
		if (!stays)
			fchmodat(AT_FDCWD, path, what & 8 ? 0666 : 0600, AT_SYMLINK_NOFOLLOW);
		break;
	default:
		snprintf(aside, sizeof(aside), "%s/aside", top);
		if (!stays)
			rename(what & 8 ? path : aside, what & 8 ? aside : path);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct session s = {.state = BROKER_SERVING};
	struct broker_fdstore *kept = broker_fdstore_new();
	struct err why = {0};
	int before = open_fds(), pair[2];

	clean();
	make_kubelet();
	roots_own = false;
	s.b = broker_new(&options, kept, &why);
	if (!s.b || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
	    broker_attach(s.b, pair[0], &why))
		abort();
	s.sock = pair[1];
	for (int i = 0; i < RECORDS_MAX && in.size && s.state == BROKER_SERVING; i++) {
		uint8_t what = next(&in);
		if (what < 150)
			send_request(&s, &in);
		else if (what < 220)
			touch_file(&in);
		else if (what < 235)
			listen_to_broker(&s);
		else
			send_raw(&s, &in);
		if (what & 1)
			turn(&s);
	}
	for (int i = 0; i < 30; i++) {
		turn(&s);
		listen_to_broker(&s);
	}
	if (s.state == BROKER_SERVING && s.answered != s.asked)
		abort();
	effects_check(roots_own ? NULL : run);
	effects_check_identities(identities);
	effects_check_mounts(kubelet);
	close(s.sock);
	broker_free(&s.b);
	broker_fdstore_free(&kept);
	if (!has_fds(before) || netns() != home)
		abort();
	return 0;
}
