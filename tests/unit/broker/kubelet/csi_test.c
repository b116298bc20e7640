/* csi_test.c - the kubelet's way to us: a socket, a link to it, and who meddles with them.
 * LINK: tests/unit/broker/kubelet/volume_rig.c tests/unit/broker/rig.c */
#include "broker/base/rundir.h"
#include "volume_rig.h"
#include <dirent.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { SECONDS = 5 };

static const char registry[] = "kubelet/plugins_registry";

/* --- the clock --- */

enum { PATIENCE_MS = 2000 }; /* at first; it doubles */

static bool hurries;
static int begun;                   /* how often patience was set to its beginning */
static int patience;                /* the timer; -1: not known yet */
static int64_t waited_ms, waits_ms; /* when it hurries: all that is over, and what is next */

static int
    unheard; /* that timer, while the test does not hurry: it is over when the test says so */

/* Patience is over at once when the test hurries. */
int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *before)
{
	const int64_t ms = to->it_value.tv_sec * 1000 + to->it_value.tv_nsec / 1000000;
	struct itimerspec at = *to;

	begun += ms == PATIENCE_MS;
	if (!hurries && ms == PATIENCE_MS) {
		unheard = fd;
		at = (struct itimerspec){.it_value.tv_sec = 3600};
	}
	if (hurries && patience < 0 && ms == PATIENCE_MS)
		patience = fd;
	if (hurries && patience == fd && ms) {
		at = (struct itimerspec){.it_value.tv_nsec = 1};
		waited_ms += ms == PATIENCE_MS ? 0 : waits_ms; /* it begins anew */
		waits_ms = ms;
	}
	return (int)syscall(SYS_timerfd_settime, fd, flags, &at, before);
}

/* What is due comes within so many turns, each of which waits for something to happen. */
static enum broker_turned turn(struct rig *r)
{
	return broker_turn(r->b, SECONDS * 1000);
}

/* The one link of ours, below the rig's top; "none": there is none, or more than one. */
static const char *entry(const struct rig *r)
{
	static char found[2][128];
	static int which;
	char *out = found[which = !which];
	DIR *d = opendir(rig_at(r, "%s", registry));
	const struct dirent *one;
	int n = 0;

	while (d && (one = readdir(d)))
		if (!strncmp(one->d_name, "agentd.node.mesh", 16) && one->d_type == DT_LNK && ++n)
			snprintf(out, sizeof(found[0]), "%s/%s", registry, one->d_name);
	if (d)
		closedir(d);
	if (n != 1)
		snprintf(out, sizeof(found[0]), "none");
	return out;
}

static bool is_entered(const struct rig *r)
{
	char to[256];
	ssize_t n = readlink(rig_at(r, "%s", entry(r)), to, sizeof(to) - 1);

	to[n > 0 ? n : 0] = '\0';
	return !strcmp(to, rig_at(r, "run/csi.sock"));
}

static void expect_entered(struct rig *r)
{
	for (int i = 0; i < 8 && !is_entered(r); i++)
		assert_int_equal(turn(r), BROKER_SERVING);
	assert_true(is_entered(r));
}

/* The worker heard it from the kubelet: the link keeps its name from now on. */
static void registered(struct rig *r)
{
	rig_do(r, (struct rig_ask){.op = LINK_CSI_REGISTERED, .arg = true});
}

static void the_kubelet_finds_a_socket_of_root(void **state)
{
	struct rig *r = *state;
	struct stat st;

	assert_true(is_entered(r));
	assert_int_equal(stat(rig_at(r, "%s", entry(r)), &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	close(rig_connect(rig_at(r, "%s", entry(r))));
}

/* What the worker is told, for a metric. */
static void expect_note(struct rig *r, unsigned n)
{
	assert_int_equal(rig_expect(r, LINK_CSI_NOTE, NULL).arg, n);
}

/* The next worker is greeted, and told. */
static void expect_greeting(struct rig *r, unsigned restored, bool is_registered)
{
	struct link_packet p;

	close(r->fd);
	rig_attach(r);
	for (int i = 0, fd; i < 3; i++) {
		rig_expect(r, i ? LINK_NODE_LISTENER : LINK_HELLO, i ? &fd : NULL);
		if (i)
			close(fd);
	}
	if (!restored && !is_registered)
		return rig_quiet(r);
	p = rig_expect(r, LINK_CSI_NOTE, NULL);
	assert_int_equal(p.arg, restored);
	assert_int_equal(p.kind, is_registered);
}

/* Under another name, or the kubelet would not look. */
static void a_removed_link_is_put_back(void **state)
{
	struct rig *r = *state;
	char before[128];

	rig_quiet(r);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(before, sizeof(before), "%s", entry(r));
		assert_int_equal(unlink(rig_at(r, "%s", before)), 0);
		expect_entered(r);
		expect_note(r, i + 1);
	}
	rig_quiet(r);
	expect_greeting(r, 3, false);
}

static void what_replaced_the_link_goes(void **state)
{
	struct rig *r = *state;
	char name[128];

	rig_shell("ln -sf /elsewhere %s", rig_at(r, "%s", entry(r)));
	expect_entered(r);
	snprintf(name, sizeof(name), "%s", entry(r));
	rig_shell("rm %s && touch %s", rig_at(r, "%s", name), rig_at(r, "%s", name));
	expect_entered(r);
	assert_int_equal(access(rig_at(r, "%s", name), F_OK), -1);
	/* A directory is not emptied; the link is beside it. */
	snprintf(name, sizeof(name), "%s", entry(r));
	rig_shell("rm %s && mkdir -p %s/x", rig_at(r, "%s", name), rig_at(r, "%s", name));
	expect_entered(r);
	assert_int_equal(access(rig_at(r, "%s/x", name), F_OK), 0);
}

static bool has_said(FILE *log, const char *text)
{
	static char all[64 * 1024];

	rewind(log);
	all[fread(all, 1, sizeof(all) - 1, log)] = '\0';
	return strstr(all, text);
}

/* After 2, 4, 8, 16 and 32 s: by then it is no back-off of the kubelet's. */
static void a_kubelet_that_is_silent_for_a_minute_is_named(void **state)
{
	struct rig *r = *state;
	FILE *log = tmpfile();
	int real = dup(STDERR_FILENO);
	int64_t said_ms = 0, said = 0;

	rig_stop(r);
	hurries = true;
	patience = -1;
	waited_ms = waits_ms = 0;
	rig_start(r);
	while (waited_ms < 300 * 1000) {
		const int64_t before = waited_ms;

		dup2(fileno(log), STDERR_FILENO);
		assert_int_equal(turn(r), BROKER_SERVING);
		dup2(real, STDERR_FILENO);
		if (waited_ms == before)
			continue;
		if (has_said(log, "the kubelet has not registered agentd")) {
			said_ms = waited_ms;
			said++;
		}
		assert_int_equal(ftruncate(fileno(log), 0), 0);
		rewind(log);
	}
	hurries = false;
	assert_int_equal(said, 1);
	assert_int_equal(said_ms, (2 + 4 + 8 + 16 + 32) * 1000);
	assert_true(is_entered(r));
	close(real);
	fclose(log);
}

/* kubelet-csi.md 6: what it did not look at, or was refused by, it tries again only under a new
 * name. */
static void another_name_until_the_kubelet_has_registered_us(void **state)
{
	struct rig *r = *state;
	const struct itimerspec now = {.it_value.tv_nsec = 1};
	char before[128];

	snprintf(before, sizeof(before), "%s", entry(r));
	assert_int_equal(syscall(SYS_timerfd_settime, unheard, 0, &now, NULL), 0);
	for (int n = 0; n < 8 && !strcmp(before, entry(r)); n++)
		assert_int_equal(turn(r), BROKER_SERVING);
	assert_string_not_equal(before, entry(r));
	assert_true(is_entered(r));
	registered(r);
	snprintf(before, sizeof(before), "%s", entry(r));
	assert_int_equal(broker_turn(r->b, 0), BROKER_SERVING);
	expect_greeting(r, 0, true);
	assert_string_equal(before, entry(r));
	/* The kubelet's word was about that link. */
	assert_int_equal(unlink(rig_at(r, "%s", before)), 0);
	expect_entered(r);
	expect_greeting(r, 1, false);
}

/* Until one is there nobody can answer: a name that goes meanwhile is an error that the kubelet
 * logs. */
static void the_kubelets_time_begins_with_a_worker(void **state)
{
	struct rig *r = *state;
	int before = begun;

	expect_greeting(r, 0, false);
	assert_int_equal(begun, before + 1);
	registered(r);
	expect_greeting(r, 0, true);
	assert_int_equal(begun, before + 1);
}

/* A reboot leaves the link on disk; the kubelet may have looked before we came. */
static void a_broker_that_follows_none_takes_another_name(void **state)
{
	struct rig *r = *state;
	char before[128];

	registered(r);
	snprintf(before, sizeof(before), "%s", entry(r));
	rig_stop(r);
	assert_string_equal(before, entry(r));
	rig_start(r);
	assert_string_not_equal(before, entry(r));
	assert_true(is_entered(r));
	expect_greeting(r, 0, false);
}

static void a_registry_may_come_later_and_again(void **state)
{
	struct rig *r = *state;

	rig_shell("rm -r %s", rig_at(r, "kubelet/plugins_registry"));
	assert_int_equal(turn(r), BROKER_SERVING);
	rig_shell("mkdir %s", rig_at(r, "kubelet/plugins_registry"));
	expect_entered(r);
	rig_stop(r);
	rig_shell("rm -r %s", rig_at(r, "kubelet/plugins_registry"));
	rig_start(r);
	rig_shell("mkdir %s", rig_at(r, "kubelet/plugins_registry"));
	expect_entered(r);
	assert_int_equal(unlink(rig_at(r, "%s", entry(r))), 0);
	expect_entered(r);
}

/* Only another worker can have the new one; returns what that is told of what was put back. */
static unsigned expect_another(struct rig *r)
{
	enum broker_turned s = BROKER_SERVING;
	struct link_packet note;
	int csi = -1;

	for (int i = 0; i < 8 && s == BROKER_SERVING; i++)
		s = turn(r);
	assert_int_equal(s, BROKER_WORKER_OUTDATED);
	close(r->fd);
	rig_attach(r);
	assert_int_equal(rig_expect(r, LINK_HELLO, NULL).kind, 2);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	close(csi);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	int c = rig_connect(rig_at(r, "%s", entry(r)));
	assert_true(c >= 0);
	int a = accept(csi, NULL, NULL);
	assert_true(a >= 0);
	close(a);
	close(c);
	close(csi);
	return rig_next(r, &note, &csi) && note.what == LINK_CSI_NOTE ? note.arg : 0;
}

static void a_socket_that_is_gone_is_made_anew(void **state)
{
	struct rig *r = *state;

	assert_int_equal(unlink(rig_at(r, "run/csi.sock")), 0);
	assert_int_equal(expect_another(r), 1);
	rig_shell("mv %s %s && touch %s", rig_at(r, "run/csi.sock"), rig_at(r, "aside"),
	    rig_at(r, "run/csi.sock"));
	assert_int_equal(expect_another(r), 2);
}

static void a_worker_that_shuts_it_down_is_another(void **state)
{
	struct rig *r = *state;
	int fd;

	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &fd);
	close(fd);
	rig_expect(r, LINK_NODE_LISTENER, &fd);
	shutdown(fd, SHUT_RDWR);
	close(fd);
	assert_int_equal(expect_another(r), 0);
}

/* An upgrade, a hand-over and systemd's store are one thing here: what is kept by its name. */
static void the_next_broker_has_the_same_socket(void **state)
{
	struct rig *r = *state;
	struct broker_fdstore *next = broker_fdstore_new();
	struct stat before, after;

	int waiting = rig_connect(rig_at(r, "%s", entry(r)));
	assert_int_equal(stat(rig_at(r, "run/csi.sock"), &before), 0);
	int csi = -1;
	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	close(csi);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	broker_fdstore_found(next, "csi", csi);
	rig_stop(r);
	assert_true(is_entered(r));
	r->kept = next;
	rig_start(r);
	assert_int_equal(stat(rig_at(r, "run/csi.sock"), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	close(csi);
	rig_expect(r, LINK_NODE_LISTENER, &csi);
	int a = accept(csi, NULL, NULL);
	assert_true(a >= 0);
	close(a);
	close(csi);
	close(waiting);
}

/* In place or from beside: the lock comes with the rest, and the kubelet noticed nothing. */
static void who_takes_over_leaves_the_link(void **state)
{
	struct rig *r = *state;
	struct broker_fdstore *next = broker_fdstore_new();
	char before[128];
	int lock = open(rig_at(r, "run/lock"), O_RDWR | O_CLOEXEC);

	registered(r);
	snprintf(before, sizeof(before), "%s", entry(r));
	rig_stop(r);
	broker_fdstore_found(next, BROKER_RUNDIR_LOCK, lock);
	r->kept = next;
	rig_start(r);
	assert_string_equal(before, entry(r));
	assert_int_equal(rig_expect(r, LINK_CSI_NOTE, NULL).kind, 1);
}

/* It refused us: the next worker hears nothing better. */
static void a_refusal_ends_the_registration(void **state)
{
	struct rig *r = *state;

	registered(r);
	rig_do(r, (struct rig_ask){.op = LINK_CSI_REGISTERED, .arg = false});
	expect_greeting(r, 0, false);
	assert_int_equal(readlink(rig_at(r, "run/registered"), (char[8]){0}, 8), -1);
}

static void without_a_kubelet_there_is_none(void **state)
{
	struct rig *r = *state;

	rig_stop(r);
	rig_shell("rm %s %s", rig_at(r, "run/csi.sock"), rig_at(r, "%s", entry(r)));
	r->o.kubelet_root = NULL;
	r->o.manifests = r->manifests;
	rig_start(r);
	rig_quiet(r);
	assert_int_equal(access(rig_at(r, "run/csi.sock"), F_OK), -1);
	assert_false(is_entered(r));
}

#define CSI_TEST(f) cmocka_unit_test_setup_teardown(f, volume_setup, volume_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CSI_TEST(the_kubelet_finds_a_socket_of_root),
	    CSI_TEST(a_removed_link_is_put_back),
	    CSI_TEST(what_replaced_the_link_goes),
	    CSI_TEST(another_name_until_the_kubelet_has_registered_us),
	    CSI_TEST(a_kubelet_that_is_silent_for_a_minute_is_named),
	    CSI_TEST(a_broker_that_follows_none_takes_another_name),
	    CSI_TEST(who_takes_over_leaves_the_link),
	    CSI_TEST(a_refusal_ends_the_registration),
	    CSI_TEST(the_kubelets_time_begins_with_a_worker),
	    CSI_TEST(a_registry_may_come_later_and_again),
	    CSI_TEST(a_socket_that_is_gone_is_made_anew),
	    CSI_TEST(a_worker_that_shuts_it_down_is_another),
	    CSI_TEST(the_next_broker_has_the_same_socket),
	    CSI_TEST(without_a_kubelet_there_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
