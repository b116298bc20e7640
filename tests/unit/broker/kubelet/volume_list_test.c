/* volume_list_test.c - what the kubelet has: the list of it, and who is not swept for it.
 * LINK: tests/unit/broker/kubelet/volume_rig.c tests/unit/broker/rig.c */
#include "volume_rig.h"

static const char data_text[] = "{\"driverName\":\"agentd.node.mesh\"}";

static int begin(void **state)
{
	volume_setup(state);
	struct rig *r = *state;
	r->volume = "mesh";
	return 0;
}

static uint32_t ask_list(struct rig *r)
{
	return rig_request(r, (struct rig_ask){.op = LINK_VOLUMES});
}

struct found {
	struct link_packet p;
	char data[256];
};

/* The next of a list; false: its reply, which says `code`. */
static bool next_found(struct rig *r, uint32_t id, struct found *f)
{
	int fd;
	ssize_t n = 0;

	assert_true(rig_next(r, &f->p, &fd));
	assert_int_equal(f->p.id, id);
	if (f->p.what == LINK_REPLY) {
		assert_int_equal(fd, -1);
		return false;
	}
	assert_int_equal(f->p.what, LINK_VOLUME);
	if (fd >= 0) {
		assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
		n = pread(fd, f->data, sizeof(f->data) - 1, 0);
		close(fd);
	}
	f->data[n > 0 ? n : 0] = '\0';
	return true;
}

/* The one volume there is. */
static struct found only(struct rig *r)
{
	uint32_t id = ask_list(r);
	struct found f, end;

	assert_true(next_found(r, id, &f));
	assert_false(next_found(r, id, &end));
	assert_int_equal(end.p.code, 0);
	return f;
}

static void expect_none(struct rig *r)
{
	struct found f;

	assert_false(next_found(r, ask_list(r), &f));
	assert_int_equal(f.p.code, 0);
}

static void a_volume_is_told_with_its_data(void **state)
{
	struct rig *r = *state;
	struct found f;

	expect_none(r);
	volume_make(r, rig_pod_text, "mesh");
	f = only(r);
	assert_true(uuid_equal(&f.p.uid, &rig_pod));
	assert_string_equal(f.p.name, "mesh");
	assert_int_equal(f.p.state, LINK_VOLUME_DIRECTORY);
	assert_string_equal(f.data, data_text);
	rig_add(r);
	rig_do(r, publish(&rig_pod));
	assert_int_equal(only(r).p.state, LINK_VOLUME_DIRECTORY | LINK_VOLUME_MOUNTED);
	rig_do(r, unpublish(&rig_pod));
	rig_shell("mkdir %s && mount -t tmpfs theirs %s", target_at(r), target_at(r));
	assert_int_equal(only(r).p.state, LINK_VOLUME_DIRECTORY);
}

/* Its server, or a process of the pod's owner, could let the broker wait for ever: so even a mount
 * of ours would not be found there. */
static void another_drivers_mount_is_not_looked_at(void **state)
{
	struct rig *r = *state;

	volume_make(r, rig_pod_text, "mesh");
	rig_add(r);
	rig_do(r, publish(&rig_pod));
	rig_file(volume_at(r, rig_pod_text, "mesh", "vol_data.json"),
	    "{\"driverName\":\"gcsfuse.csi.storage.gke.io\"}");
	assert_int_equal(only(r).p.state, LINK_VOLUME_DIRECTORY);
	rig_file(volume_at(r, rig_pod_text, "mesh", "vol_data.json"), "");
	assert_int_equal(only(r).p.state, LINK_VOLUME_DIRECTORY | LINK_VOLUME_MOUNTED);
	rig_shell("rm %s", volume_at(r, rig_pod_text, "mesh", "vol_data.json"));
	assert_int_equal(only(r).p.state, LINK_VOLUME_DIRECTORY | LINK_VOLUME_MOUNTED);
}

static void what_is_no_volume_is_not_told(void **state)
{
	struct rig *r = *state;

	rig_shell("cd %s && mkdir -p x not-a-uid/volumes/kubernetes.io~csi/a "
		  "%s/volumes/kubernetes.io~csi/..bad %s/volumes/kubernetes.io~csi/A_B "
		  "%s/volumes/kubernetes.io~projected/token && touch file "
		  "%s/volumes/kubernetes.io~csi/file && ln -s / %s/volumes/kubernetes.io~csi/link",
	    rig_at(r, "kubelet/pods"), rig_pod_text, rig_pod_text, rig_pod_text, rig_pod_text,
	    rig_pod_text);
	expect_none(r);
	rig_shell("rm -r %s", rig_at(r, "kubelet/pods"));
	expect_none(r);
	rig_shell("touch %s", rig_at(r, "kubelet/pods"));
	rig_refused(r, (struct rig_ask){.op = LINK_VOLUMES}, ENOTDIR, "kubelet/pods");
}

/* Each is told without it, with the reason. */
static void odd_data_is_not_read(void **state)
{
	static const struct {
		const char *make, *why; /* of the file in the current directory */
	} odd[] = {{"rm $f", "is not there"}, {"ln -s /etc/shadow $f", "is a symbolic link"},
	    {"rm $f; mkfifo $f", "not a regular file"},
	    {"rm $f; touch $f; chown 1000 $f", "uid 1000"},
	    {"chown 0 $f; chmod 666 $f", "writable by others"},
	    {"chmod 600 $f; truncate -s 1048577 $f", "larger"}};
	struct rig *r = *state;

	volume_make(r, rig_pod_text, "mesh");
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		rig_shell("cd %s; f=vol_data.json; %s", volume_at(r, rig_pod_text, "mesh", ""),
		    odd[i].make);
		struct found f = only(r);
		assert_int_equal(f.p.state, LINK_VOLUME_DIRECTORY);
		assert_string_equal(f.data, "");
		assert_true(f.p.code != 0);
		if (!strstr(f.p.why, odd[i].why) || strncmp(f.p.why, "vol_data.json ", 14) != 0)
			fail_msg("\"%s\" lacks \"%s\"", f.p.why, odd[i].why);
	}
}

/* More than there is room for in the socket. */
enum { MANY = 100 };

static void make_many(struct rig *r)
{
	char uid[UUID_TEXT_SIZE];

	for (int i = 0; i < MANY; i++) {
		struct uuid u = {{(uint8_t)i}};
		uuid_format(&u, uid);
		volume_make(r, uid, "mesh");
	}
	rig_stop(r);
	r->sndbuf = 4096;
	rig_start(r);
}

/* Each is told once, and in order with other answers. */
static void a_list_waits_for_its_reader(void **state)
{
	struct rig *r = *state;
	bool seen[MANY] = {false};
	struct found f;
	int n = 0;

	make_many(r);
	uint32_t id = ask_list(r);
	uint32_t next = rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
	for (int i = 0; i < 3 * MANY; i++)
		broker_turn(r->b, 0); /* nobody reads */
	for (; next_found(r, id, &f); n++) {
		assert_false(seen[f.p.uid.bytes[0]]);
		seen[f.p.uid.bytes[0]] = true;
	}
	assert_int_equal(n, MANY);
	assert_int_equal(rig_expect(r, LINK_REPLY, NULL).id, next);
}

static void a_list_ends_with_its_worker(void **state)
{
	struct rig *r = *state;
	struct found f;

	make_many(r);
	assert_true(next_found(r, ask_list(r), &f));
	close(r->fd);
	rig_attach(r);
	for (int i = 0, fd; i < 3; i++) {
		rig_expect(r, i ? LINK_NODE_LISTENER : LINK_HELLO, i ? &fd : NULL);
		if (i)
			close(fd);
	}
	rig_quiet(r);
	uint32_t id = ask_list(r);
	for (int n = 0; n < MANY; n++)
		assert_true(next_found(r, id, &f));
	assert_false(next_found(r, id, &f));
}

/* --- who is swept --- */

static bool is_there(const struct rig *r, const char *uid)
{
	return !access(rig_at(r, "run/pods/%s", uid), F_OK);
}

/* Another broker, whose worker adds nothing. */
static void sweep(struct rig *r)
{
	rig_stop(r);
	rig_start(r);
	rig_do(r, (struct rig_ask){.op = LINK_READY});
}

static void a_pod_with_a_volume_is_not_swept(void **state)
{
	struct rig *r = *state;

	volume_make(r, rig_pod_text, "mesh");
	rig_add(r);
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	sweep(r);
	assert_true(is_there(r, rig_pod_text));
	assert_false(is_there(r, rig_other_text));
	rig_shell("rm -r %s", volume_at(r, rig_pod_text, "mesh", ""));
	sweep(r);
	assert_false(is_there(r, rig_pod_text));
}

/* A directory that is not mounted into our container, or not yet. */
static void without_the_kubelets_directory_nothing_is_swept(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	assert_int_equal(rename(rig_at(r, "kubelet/pods"), rig_at(r, "kubelet/aside")), 0);
	sweep(r);
	assert_true(is_there(r, rig_pod_text));
	assert_int_equal(rename(rig_at(r, "kubelet/aside"), rig_at(r, "kubelet/pods")), 0);
	sweep(r);
	assert_false(is_there(r, rig_pod_text));
}

static void both_sources_count(void **state)
{
	struct rig *r = *state;

	r->o.manifests = r->manifests;
	rig_add(r);
	sweep(r);
	assert_true(is_there(r, rig_pod_text)); /* there is no directory of manifests */
	rig_shell("mkdir %s && touch %s/%s.yaml", r->manifests, r->manifests, rig_pod_text);
	sweep(r);
	assert_true(is_there(r, rig_pod_text));
	rig_shell("rm %s/%s.yaml", r->manifests, rig_pod_text);
	sweep(r);
	assert_false(is_there(r, rig_pod_text));
}

/* None were asked for: the worker need not wait for them. */
static void no_manifests_are_synced_at_once(void **state)
{
	struct rig *r = *state;

	uint32_t id =
	    rig_request(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_MANIFESTS, 0, NULL, 0});
	rig_expect(r, LINK_REPLY, NULL);
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_quiet(r);
	rig_add(r);
	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_TOKEN, 0, &rig_pod, 0}, ENOENT,
	    "no manifests");
}

/* --- what is kept of a pod --- */

static void a_pods_state_outlives_the_broker(void **state)
{
	struct rig *r = *state;
	struct link_request q = {.id = 77, .op = LINK_STATE_PUT, .kind = LINK_STATE_POD};
	int fd = rig_memfd("{\"version\":1}", 13, RIG_SEALS), got;
	char text[32] = "";

	memcpy(q.state_id, rig_pod.bytes, sizeof(rig_pod.bytes));
	rig_send(r, &q, sizeof(q), &fd, 1);
	assert_int_equal(rig_expect(r, LINK_REPLY, NULL).code, 0);
	close(fd);
	rig_stop(r);
	rig_start(r);
	uint32_t id =
	    rig_request(r, (struct rig_ask){.op = LINK_STATE_LIST, .kind = LINK_STATE_POD});
	struct link_packet p = rig_expect(r, LINK_STATE, &got);
	assert_int_equal(p.id, id);
	assert_int_equal(p.kind, LINK_STATE_POD);
	assert_memory_equal(p.state_id, rig_pod.bytes, sizeof(rig_pod.bytes));
	assert_int_equal(pread(got, text, sizeof(text), 0), 13);
	assert_string_equal(text, "{\"version\":1}");
	close(got);
	rig_expect(r, LINK_REPLY, NULL);
}

#define LIST_TEST(f) cmocka_unit_test_setup_teardown(f, begin, volume_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    LIST_TEST(a_volume_is_told_with_its_data),
	    LIST_TEST(another_drivers_mount_is_not_looked_at),
	    LIST_TEST(what_is_no_volume_is_not_told),
	    LIST_TEST(odd_data_is_not_read),
	    LIST_TEST(a_list_waits_for_its_reader),
	    LIST_TEST(a_list_ends_with_its_worker),
	    LIST_TEST(a_pod_with_a_volume_is_not_swept),
	    LIST_TEST(without_the_kubelets_directory_nothing_is_swept),
	    LIST_TEST(both_sources_count),
	    LIST_TEST(no_manifests_are_synced_at_once),
	    LIST_TEST(a_pods_state_outlives_the_broker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
