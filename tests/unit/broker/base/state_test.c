/* state_test.c - what is kept for the next worker, on a real tmpfs below /tmp.
 *
 * The mounts are this process's own.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/fdstore.h"
#include "broker/base/state.h"
#include "broker/base/store.h"
#include "broker/base/tmpfs.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

/* Writes to this file system fail with it, unless it is 0. */
static int write_error;
static dev_t write_error_dev;

ssize_t write(int fd, const void *data, size_t size)
{
	struct stat st;

	if (write_error && !fstat(fd, &st) && st.st_dev == write_error_dev) {
		errno = write_error;
		return -1;
	}
	return syscall(SYS_write, fd, data, size);
}

struct world {
	struct rig r; /* its directories; it has no broker */
	struct broker_fdstore *kept;
	struct broker_states *s;
	struct err why;
};

static const char *state_at(struct world *w, const char *rest)
{
	return rig_at(&w->r, "run/state%s", rest);
}

static void open_state(struct world *w)
{
	w->kept = w->kept ? w->kept : broker_fdstore_new();
	w->s = broker_state_new(&w->r.o, w->kept, &w->why);
	if (!w->s)
		fail_msg("%s", w->why.msg);
}

/* The list of kept ones goes over to the next one, as it does in an upgrade. */
static void pass_on(void *ctx, const char *name, int fd)
{
	broker_fdstore_found(ctx, name, fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static void next_broker(struct world *w, bool upgrade)
{
	struct broker_fdstore *next = broker_fdstore_new();

	if (upgrade)
		broker_fdstore_each(w->kept, BROKER_FDSTORE, pass_on, next);
	broker_state_free(&w->s);
	broker_fdstore_free(&w->kept);
	w->kept = next;
	open_state(w);
}

static int setup(void **state)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	write_error = 0;
	rig_own_mounts();
	strcpy(w.r.top, "/tmp/brXXXXXX");
	assert_non_null(mkdtemp(w.r.top));
	snprintf(w.r.run, sizeof(w.r.run), "%s/run", w.r.top);
	w.r.o = (struct broker_options){.run = w.r.run, .max_pods = 2};
	assert_int_equal(mkdir(w.r.run, 0711), 0);
	open_state(&w);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	broker_state_free(&w->s);
	broker_fdstore_free(&w->kept);
	while (!umount2(state_at(w, ""), MNT_DETACH))
		;
	rig_shell("rm -rf %s", w->r.top);
	return 0;
}

static struct link_request request(unsigned kind, unsigned id)
{
	return (struct link_request){
	    .id = 7, .kind = (uint16_t)kind, .state_id = {(uint8_t)id, (uint8_t)(id >> 8), 0xab}};
}

static int put_bytes(struct world *w, unsigned kind, unsigned id, const void *data, size_t size)
{
	struct link_request r = request(kind, id);
	int fd = rig_memfd(data, size, RIG_SEALS);
	int rc = broker_state_put(w->s, &r, fd, &w->why);

	close(fd);
	return rc;
}

static int put(struct world *w, unsigned kind, unsigned id, const char *text)
{
	return put_bytes(w, kind, id, text, strlen(text));
}

static int del(struct world *w, unsigned kind, unsigned id)
{
	struct link_request r = request(kind, id);

	return broker_state_del(w->s, &r, &w->why);
}

/* How many there are; the content of the last one with this id goes to `text`. */
static unsigned list(struct world *w, unsigned kind, unsigned id, char text[64])
{
	struct link_request r = request(kind, 0);
	struct link_packet p;
	unsigned n = 0;
	int fd;

	*text = '\0';
	assert_int_equal(broker_state_list(w->s, &r, &w->why), 0);
	for (;; n++) {
		assert_true(broker_state_listing(w->s));
		broker_state_next(w->s, &p, &fd);
		assert_int_equal(p.id, r.id);
		if (p.what == LINK_REPLY)
			break;
		assert_int_equal(p.what, LINK_STATE);
		assert_int_equal(p.kind, kind);
		assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
		assert_int_equal(p.state_id[2], 0xab);
		if ((p.state_id[0] | p.state_id[1] << 8) == (int)id) {
			ssize_t got = pread(fd, text, 63, 0);
			text[got > 0 ? got : 0] = '\0';
		}
		close(fd);
	}
	assert_int_equal(fd, -1);
	assert_int_equal(p.code, 0);
	assert_false(broker_state_listing(w->s));
	return n;
}

static unsigned count(struct world *w, unsigned kind)
{
	char text[64];

	return list(w, kind, 0, text);
}

static unsigned mounts_at(const char *path)
{
	char line[1024];
	unsigned n = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (fgets(line, sizeof(line), f)) {
		char where[512];
		if (sscanf(line, "%*s %*s %*s %*s %511s", where) == 1)
			n += !strcmp(where, path);
	}
	fclose(f);
	return n;
}

static void expect_mode(const char *path, mode_t mode)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_uid, 0);
}

/* --- the file system --- */

static void a_tmpfs_of_its_own_for_root_alone(void **state)
{
	struct world *w = *state;
	struct statfs fs;
	struct broker_tmpfs t;

	assert_int_equal(put(w, LINK_STATE_CERT, 1, "key"), 0);
	assert_int_equal(statfs(state_at(w, ""), &fs), 0);
	assert_int_equal(fs.f_type, TMPFS_MAGIC);
	assert_int_equal(fs.f_blocks * (size_t)fs.f_bsize, 64 << 20);
	assert_int_equal(
	    fs.f_flags & (ST_NOSUID | ST_NODEV | ST_NOEXEC), ST_NOSUID | ST_NODEV | ST_NOEXEC);
	expect_mode(state_at(w, ""), 0700);
	expect_mode(state_at(w, "/cert"), 0700);
	expect_mode(
	    state_at(w, "/cert/0100ab0000000000000000000000000000000000000000000000000000000000"),
	    0600);
	broker_tmpfs_look(state_at(w, ""), &t);
	assert_int_equal(t.is, BROKER_TMPFS_FOUND);
}

/* Also where <run> is a tmpfs already, and never twice. */
static void it_is_mounted_once(void **state)
{
	struct world *w = *state;

	assert_int_equal(mounts_at(state_at(w, "")), 1);
	next_broker(w, false);
	next_broker(w, true);
	assert_int_equal(mounts_at(state_at(w, "")), 1);
	broker_state_free(&w->s);
	assert_int_equal(umount(state_at(w, "")), 0);
	assert_int_equal(mount("x", w->r.run, "tmpfs", 0, "mode=711"), 0);
	open_state(w);
	next_broker(w, false);
	assert_int_equal(mounts_at(state_at(w, "")), 1);
	assert_int_equal(umount(state_at(w, "")), 0);
	assert_int_equal(umount2(w->r.run, MNT_DETACH), 0);
}

static void expect_refused(struct world *w, const char *says)
{
	broker_state_free(&w->s);
	/* The trial of a new release sees it while the old one goes on. */
	assert_int_equal(broker_state_check(&w->r.o, &w->why), -1);
	if (!strstr(w->why.msg, says))
		fail_msg("%s", w->why.msg);
	w->s = broker_state_new(&w->r.o, w->kept, &w->why);
	assert_null(w->s);
	if (!strstr(w->why.msg, says))
		fail_msg("%s", w->why.msg);
}

static void what_others_can_reach_is_refused(void **state)
{
	struct world *w = *state;

	assert_int_equal(chmod(state_at(w, ""), 0750), 0);
	expect_refused(w, "0750");
	assert_int_equal(chmod(state_at(w, ""), 0700), 0);
	assert_int_equal(chown(state_at(w, ""), 1000, 0), 0);
	expect_refused(w, "uid 1000");
	assert_int_equal(umount(state_at(w, "")), 0);
	assert_int_equal(chmod(state_at(w, ""), 0755), 0);
	expect_refused(w, "0755");
	assert_int_equal(rmdir(state_at(w, "")), 0);
	assert_int_equal(symlink("/tmp", state_at(w, "")), 0);
	expect_refused(w, "state");
	assert_int_equal(unlink(state_at(w, "")), 0);
	assert_int_equal(mkdir(state_at(w, ""), 0700), 0);
	assert_int_equal(mount(w->r.top, state_at(w, ""), NULL, MS_BIND, NULL), 0);
	expect_refused(w, "no tmpfs");
}

static void looking_changes_nothing(void **state)
{
	struct world *w = *state;
	struct broker_tmpfs t;

	assert_int_equal(broker_state_check(&w->r.o, &w->why), 0);
	broker_state_free(&w->s);
	assert_int_equal(umount(state_at(w, "")), 0);
	assert_int_equal(broker_state_check(&w->r.o, &w->why), 0);
	broker_tmpfs_look(state_at(w, ""), &t);
	assert_int_equal(t.is, BROKER_TMPFS_MOUNTED);
	assert_int_equal(rmdir(state_at(w, "")), 0);
	broker_tmpfs_look(state_at(w, ""), &t);
	assert_int_equal(t.is, BROKER_TMPFS_MOUNTED);
	assert_int_equal(access(state_at(w, ""), F_OK), -1);
	assert_int_equal(mounts_at(state_at(w, "")), 0);
}

/* Without the right to mount all is kept in memory, which an upgrade passes on. */
static void without_a_tmpfs_it_is_memory(void **state)
{
	struct world *w = *state;
	pid_t pid;
	int status;

	broker_state_free(&w->s);
	assert_int_equal(umount(state_at(w, "")), 0);
	pid = fork();
	if (pid == 0) {
		struct broker_state_netns n = {5, 6}, got;
		char text[64];
		struct __attribute__((packed)) {
			uint32_t version;
			int pid;
		} head = {0x20080522, 0};
		uint32_t none[6] = {1 << 1 | 1 << 2, 1 << 1 | 1 << 2}; /* CAP_DAC_* only */
		if (syscall(SYS_capset, &head, none))
			_exit(1);
		open_state(w);
		if (put(w, LINK_STATE_CERT, 1, "in memory"))
			_exit(2);
		assert_int_equal(broker_state_netns_put(w->s, &rig_pod, &n, &w->why), 0);
		if (access(state_at(w, "/cert"), F_OK) == 0)
			_exit(3);
		next_broker(w, true);
		if (list(w, LINK_STATE_CERT, 1, text) != 1 || strcmp(text, "in memory") != 0)
			_exit(4);
		if (!broker_state_netns_get(w->s, &rig_pod, &got) || got.cookie != 5)
			_exit(5);
		next_broker(w, false);
		_exit(count(w, LINK_STATE_CERT) ? 6 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	open_state(w);
}

/* --- entries --- */

static void what_is_put_is_listed_until_it_is_deleted(void **state)
{
	struct world *w = *state;
	char text[64];

	for (unsigned kind = 0; kind < LINK_STATE_END; kind++) {
		assert_int_equal(count(w, kind), 0);
		assert_int_equal(put(w, kind, 1, "one"), 0);
		assert_int_equal(put(w, kind, 2, "two"), 0);
		assert_int_equal(put(w, kind, 1, "another one"), 0);
		assert_int_equal(list(w, kind, 1, text), 2);
		assert_string_equal(text, "another one");
		next_broker(w, true);
		assert_int_equal(list(w, kind, 2, text), 2);
		assert_string_equal(text, "two");
		assert_int_equal(del(w, kind, 1), 0);
		assert_int_equal(del(w, kind, 1), 0); /* it is not there: fine */
		assert_int_equal(list(w, kind, 1, text), 1);
		assert_string_equal(text, "");
		assert_int_equal(del(w, kind, 2), 0);
	}
}

/* security-rules.md 7: with state_keys: memory a key is nowhere when the last broker is dead. */
static void memory_ends_with_the_last_broker(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, LINK_STATE_CERT, 1, "file"), 0);
	assert_int_equal(put(w, LINK_STATE_CERT_IN_MEMORY, 1, "key"), 0);
	assert_true(broker_state_is_key("cert-memory.00"));
	assert_true(broker_state_is_key("cert.00"));
	assert_false(broker_state_is_key("01020300-0000-0000-0000-000000000000.sds"));
	next_broker(w, false);
	assert_int_equal(count(w, LINK_STATE_CERT), 1);
	assert_int_equal(count(w, LINK_STATE_CERT_IN_MEMORY), 0);
}

static void only_sealed_memory_of_one_mebibyte_is_taken(void **state)
{
	struct world *w = *state;
	struct link_request r = request(LINK_STATE_CERT, 1);
	static char large[(1 << 20) + 1];
	int open_fd = rig_memfd("x", 1, 0), null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (unsigned kind = 0; kind < LINK_STATE_END; kind++) {
		r.kind = (uint16_t)kind;
		assert_int_equal(broker_state_put(w->s, &r, open_fd, &w->why), -1);
		assert_int_equal(broker_state_put(w->s, &r, null, &w->why), -1);
		assert_int_equal(put_bytes(w, kind, 1, large, sizeof(large)), -1);
		assert_int_equal(w->why.code, EFBIG);
		assert_int_equal(count(w, kind), 0);
		assert_int_equal(put_bytes(w, kind, 1, large, sizeof(large) - 1), 0);
		assert_int_equal(del(w, kind, 1), 0);
	}
	r.kind = LINK_STATE_END;
	assert_int_equal(broker_state_put(w->s, &r, open_fd, &w->why), -1);
	assert_int_equal(broker_state_del(w->s, &r, &w->why), -1);
	assert_int_equal(broker_state_list(w->s, &r, &w->why), -1);
	assert_false(broker_state_listing(w->s));
	close(open_fd);
	close(null);
}

/* Of all kinds together. */
static void entries_are_bounded(void **state)
{
	struct world *w = *state;
	unsigned kind = LINK_STATE_CERT;

	for (unsigned i = 0; i < 76; i++) /* 6 for each of 2 pods, and 64 */
		assert_int_equal(put(w, i % 2, i, "x"), 0);
	assert_int_equal(put(w, kind, 100, "x"), -1);
	assert_int_equal(w->why.code, ENOSPC);
	assert_int_equal(put(w, kind, 0, "again"), 0);
	next_broker(w, true); /* counts what is there */
	assert_int_equal(put(w, kind, 100, "x"), -1);
	assert_int_equal(del(w, kind, 0), 0);
	assert_int_equal(put(w, kind, 100, "x"), 0);
}

static void bytes_are_bounded(void **state)
{
	struct world *w = *state;
	static char large[1 << 20];
	unsigned n = 0;

	while (n < 70 && !put_bytes(w, LINK_STATE_CERT_IN_MEMORY, n, large, sizeof(large)))
		n++;
	assert_int_equal(n, 40);
	assert_int_equal(w->why.code, ENOSPC);
	assert_int_equal(put_bytes(w, LINK_STATE_CERT_IN_MEMORY, 1, large, sizeof(large)), 0);
	assert_int_equal(put(w, LINK_STATE_CERT, 1, "x"), -1);
	/* Names have their own room: they keep no certificate out, and none keeps them. */
	for (n = 0; n < 30 && !put_bytes(w, LINK_STATE_NAMES, n, large, sizeof(large)); n++)
		;
	assert_int_equal(n, 24);
	assert_int_equal(del(w, LINK_STATE_CERT_IN_MEMORY, 1), 0);
	assert_int_equal(put(w, LINK_STATE_CERT, 1, "x"), 0);
	assert_int_equal(put(w, LINK_STATE_NAMES, 77, "x"), -1);
}

/* What somebody else put there is neither told nor in the way. */
static void strangers_in_the_directory_are_ignored(void **state)
{
	struct world *w = *state;
	char text[64];

	assert_int_equal(put(w, LINK_STATE_CERT, 1, "one"), 0);
	rig_file(state_at(w, "/cert/.00.new"), "left by a death");
	rig_file(state_at(w, "/cert/abc-def"), "x");
	assert_int_equal(mkdir(state_at(w, "/cert/aa"), 0700), 0);
	assert_int_equal(
	    symlink("/etc/passwd",
		state_at(
		    w, "/cert/0200ab0000000000000000000000000000000000000000000000000000000000")),
	    0);
	next_broker(w, false);
	assert_int_equal(list(w, LINK_STATE_CERT, 1, text), 1);
	assert_string_equal(text, "one");
	assert_int_equal(access(state_at(w, "/cert/.00.new"), F_OK), -1);
	/* It is replaced, not followed. */
	assert_int_equal(put(w, LINK_STATE_CERT, 2, "two"), 0);
	assert_int_equal(list(w, LINK_STATE_CERT, 2, text), 2);
	assert_string_equal(text, "two");
}

/* --- faults --- */

static void expect_put_fails(struct world *w, int code)
{
	char text[64];

	assert_int_equal(put(w, LINK_STATE_CERT, 1, "newer"), -1);
	assert_int_equal(w->why.code, code);
	assert_int_equal(list(w, LINK_STATE_CERT, 1, text), 1);
	assert_string_equal(text, "older");
}

static void faults_pass_and_leave_what_was_there(void **state)
{
	struct world *w = *state;
	static char room[1 << 16];
	struct stat st;
	char text[64];

	assert_int_equal(put(w, LINK_STATE_CERT, 1, "older"), 0);
	int fd = open(state_at(w, "/fill"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, room, sizeof(room)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	expect_put_fails(w, ENOSPC);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	write_error_dev = st.st_dev;
	write_error = EIO;
	expect_put_fails(w, EIO);
	write_error = 0;
	assert_int_equal(mount(NULL, state_at(w, ""), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	expect_put_fails(w, EROFS);
	assert_int_equal(del(w, LINK_STATE_CERT, 1), -1);
	assert_int_equal(w->why.code, EROFS);
	next_broker(w, false); /* one starts with it, too */
	expect_put_fails(w, EROFS);
	assert_int_equal(mount(NULL, state_at(w, ""), NULL, MS_REMOUNT, NULL), 0);
	assert_int_equal(put(w, LINK_STATE_CERT, 1, "newer"), 0);
	assert_int_equal(list(w, LINK_STATE_CERT, 1, text), 1);
	assert_string_equal(text, "newer");
}

/* --- the broker's own --- */

static void a_namespace_is_remembered_until_it_is_deleted(void **state)
{
	struct world *w = *state;
	struct broker_state_netns n = {UINT64_MAX, UINT64_MAX}, got;

	assert_false(broker_state_netns_get(w->s, &rig_pod, &got));
	assert_int_equal(broker_state_netns_put(w->s, &rig_pod, &n, &w->why), 0);
	next_broker(w, false);
	assert_true(broker_state_netns_get(w->s, &rig_pod, &got));
	assert_memory_equal(&got, &n, sizeof(n));
	assert_false(broker_state_netns_get(w->s, &rig_other, &got));
	assert_int_equal(broker_state_netns_del(w->s, &rig_pod, &w->why), 0);
	assert_false(broker_state_netns_get(w->s, &rig_pod, &got));
}

static void another_namespace_record_is_none(void **state)
{
	static const char *const texts[] = {"", "version: 2\n", "version: 1\nboot_id: x\n",
	    ("version: 1\nboot_id: 00000000-0000-0000-0000-000000000000\nnetns_cookie: 5\n"
	     "cgroup_id: 6\n"),
	    "netns_cookie: 5\n"};
	struct world *w = *state;
	struct broker_state_netns n = {5, 6}, got;
	char path[256], right[256] = "";

	assert_int_equal(broker_state_netns_put(w->s, &rig_pod, &n, &w->why), 0);
	snprintf(path, sizeof(path), "%s/pod/%s", state_at(w, ""), rig_pod_text);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, right, sizeof(right));
	close(fd);
	assert_true(size > 50);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		rig_file(path, texts[i]);
		assert_false(broker_state_netns_get(w->s, &rig_pod, &got));
	}
	for (ssize_t at = 0; at < size; at++) {
		char text[256] = "";
		memcpy(text, right, (size_t)at);
		rig_file(path, text);
		assert_false(broker_state_netns_get(w->s, &rig_pod, &got));
	}
	rig_file(path, right);
	assert_true(broker_state_netns_get(w->s, &rig_pod, &got));
}

/* --- as a worker sees it --- */

static int rig_up(void **state)
{
	return rig_setup(state);
}

/* Answers come in order, and a list of any length costs no queue. */
static void a_list_is_told_before_the_next_answer(void **state)
{
	struct rig *r = *state;
	unsigned told = 0;
	uint32_t id, next;
	struct link_packet p;
	int fd = rig_memfd("kept", 4, RIG_SEALS);

	for (uint8_t i = 0; i < 60; i++) {
		struct link_request q = {.id = ++r->id, .op = LINK_STATE_PUT, .state_id = {i}};
		rig_send(r, &q, sizeof(q), &fd, 1);
		p = rig_expect(r, LINK_REPLY, NULL);
		assert_int_equal(p.code, 0);
	}
	close(fd);
	id = rig_request(r, (struct rig_ask){.op = LINK_STATE_LIST});
	next = rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
	for (;; told++) {
		assert_true(rig_next(r, &p, &fd));
		assert_int_equal(p.id, id);
		if (p.what == LINK_REPLY)
			break;
		assert_int_equal(p.what, LINK_STATE);
		close(fd);
	}
	assert_int_equal(told, 60);
	p = rig_expect(r, LINK_REPLY, NULL);
	assert_int_equal(p.id, next);
	rig_refused(
	    r, (struct rig_ask){.op = LINK_STATE_LIST, .kind = LINK_STATE_END}, EINVAL, "no state");
}

/* A worker that dies in the middle of it leaves nothing behind for the next one. */
static void a_list_ends_with_its_worker(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("kept", 4, RIG_SEALS);
	struct link_packet p;

	for (uint8_t i = 0; i < 60; i++) {
		struct link_request q = {.id = ++r->id, .op = LINK_STATE_PUT, .state_id = {i}};
		rig_send(r, &q, sizeof(q), &fd, 1);
		rig_expect(r, LINK_REPLY, NULL);
	}
	close(fd);
	rig_request(r, (struct rig_ask){.op = LINK_STATE_LIST});
	broker_turn(r->b, 0);
	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &fd);
	close(fd);
	rig_add(r);
	rig_request(r, (struct rig_ask){.op = LINK_STATE_LIST});
	assert_true(rig_next(r, &p, &fd));
	assert_int_equal(p.what, LINK_STATE);
	close(fd);
}

#define STATE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_up, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    STATE_TEST(a_tmpfs_of_its_own_for_root_alone),
	    STATE_TEST(it_is_mounted_once),
	    STATE_TEST(what_others_can_reach_is_refused),
	    STATE_TEST(looking_changes_nothing),
	    STATE_TEST(without_a_tmpfs_it_is_memory),
	    STATE_TEST(what_is_put_is_listed_until_it_is_deleted),
	    STATE_TEST(memory_ends_with_the_last_broker),
	    STATE_TEST(only_sealed_memory_of_one_mebibyte_is_taken),
	    STATE_TEST(entries_are_bounded),
	    STATE_TEST(bytes_are_bounded),
	    STATE_TEST(strangers_in_the_directory_are_ignored),
	    STATE_TEST(faults_pass_and_leave_what_was_there),
	    STATE_TEST(a_namespace_is_remembered_until_it_is_deleted),
	    STATE_TEST(another_namespace_record_is_none),
	    RIG_TEST(a_list_is_told_before_the_next_answer),
	    RIG_TEST(a_list_ends_with_its_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
