/* cgroup_test.c - a pod in another network namespace: restarted, or somebody else?
 *
 * The cgroup is real, below the mounted cgroup v2.
 * LINK: tests/unit/broker/pods/peer.c tests/unit/broker/rig.c */
#include "broker/pods/cgroup.h"
#include "peer.h"
#include <sys/epoll.h>
#include <sys/resource.h>

struct world {
	struct rig *rig;
	int listener;
	char root[PATH_MAX];
	char name[64], path[PATH_MAX + 64];
};

static void make_cgroup(struct world *w)
{
	assert_int_equal(mkdir(w->path, 0755), 0);
}

/* When the last process was waited for, its cgroup may still be busy for a moment. */
static void remove_cgroup(struct world *w)
{
	for (int i = 0; rmdir(w->path) && errno == EBUSY && i < 30000; i++)
		usleep(1000);
	assert_int_equal(access(w->path, F_OK), -1);
}

static const char *named_in(const struct world *w)
{
	return rig_at(w->rig, "pods.d/%s/cgroup", rig_pod_text);
}

static void name_cgroup(struct world *w, const char *text)
{
	rig_file(named_in(w), text);
	assert_int_equal(chmod(named_in(w), 0600), 0);
}

static struct world *begin(void **state)
{
	static struct world w;
	static int count;
	struct broker_options here = {.cgroup_root = NULL};

	w = (struct world){.rig = *state};
	assert_int_equal(pod_cgroup_root(&here, w.root), 0);
	snprintf(w.name, sizeof(w.name), "broker_cgroup_test.%d.%d", getpid(), ++count);
	snprintf(w.path, sizeof(w.path), "%s/%s", w.root, w.name);
	make_cgroup(&w);
	rig_shell("mkdir -p %s/%s", w.rig->manifests, rig_pod_text);
	name_cgroup(&w, w.name);
	w.listener = make_listener(w.rig);
	return &w;
}

static void end(struct world *w)
{
	remove_cgroup(w);
	close(w->listener);
}

static void join(const struct world *w, pid_t pid)
{
	char path[PATH_MAX + 128], text[16];

	snprintf(path, sizeof(path), "%s/cgroup.procs", w->path);
	snprintf(text, sizeof(text), "%d", pid);
	rig_file(path, text);
}

static struct peer member(struct world *w)
{
	struct peer p = peer_new(w->rig, w->listener, "");

	join(w, p.pid);
	return p;
}

static void accepted(struct world *w, const struct peer *p)
{
	struct link_packet reply = rig_ask(w->rig, peer_of(&rig_pod, p->accepted), NULL);

	if (reply.code)
		fail_msg("%s", reply.why);
	assert_int_equal(reply.netns_cookie, p->cookie);
}

static void refused(struct world *w, const struct peer *p, const char *text)
{
	rig_refused(w->rig, peer_of(&rig_pod, p->accepted), EPERM, text);
}

/* The kernel's notices come at most each 10 ms. */
static void let_the_kernel_tell(struct world *w)
{
	for (int i = 0; i < 3; i++)
		broker_turn(w->rig->b, 30);
	assert_true(rig_is_idle(w->rig));
}

static const char never[] = "the pod's cgroup was never empty since";
static const char not_named[] = "give <uid>/cgroup";

/* The node was rebooted, or the sandbox was: the cgroup was empty, now somebody is in it. */
static void test_a_restarted_pod_may_have_a_new_namespace(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w), intruder = member(w), second, late;

	accepted(w, &first);
	let_the_kernel_tell(w);
	refused(w, &intruder, never);
	peer_end(&first);
	let_the_kernel_tell(w);
	refused(w, &intruder, never); /* somebody is still in it */
	peer_end(&intruder);
	let_the_kernel_tell(w);
	second = member(w);
	let_the_kernel_tell(w);
	accepted(w, &second);
	late = member(w); /* it begins anew */
	refused(w, &late, never);
	accepted(w, &second);
	peer_end(&second);
	peer_end(&late);
	end(w);
}

/* Another cgroup of the same name is another one, whoever is in it. */
static void test_a_cgroup_made_anew_is_a_restart(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w), second;

	accepted(w, &first);
	peer_end(&first);
	remove_cgroup(w);
	make_cgroup(w);
	second = member(w);
	accepted(w, &second);
	let_the_kernel_tell(w);
	peer_end(&second);
	end(w);
}

static void test_a_removed_cgroup_keeps_nobody_awake(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w);

	accepted(w, &first);
	peer_end(&first);
	remove_cgroup(w);
	let_the_kernel_tell(w);
	rig_do(w->rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	make_cgroup(w);
	end(w);
}

/* A service that starts again in the namespace it had leaves no door open behind it. */
static void test_the_same_namespace_begins_anew(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w), after, other;
	char path[64], procs[PATH_MAX + 128];

	accepted(w, &first);
	snprintf(path, sizeof(path), "/proc/%d/ns/net", first.pid);
	int netns = open(path, O_RDONLY | O_CLOEXEC);
	peer_end(&first);
	let_the_kernel_tell(w);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", w->path);
	after = peer_start(w->rig, w->listener, netns, NULL, procs);
	accepted(w, &after);
	other = member(w);
	refused(w, &other, never);
	close(netns);
	peer_end(&after);
	peer_end(&other);
	end(w);
}

static void test_a_cgroup_may_be_named_later(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w), second;

	unlink(named_in(w));
	accepted(w, &first);
	second = peer_new(w->rig, w->listener, "");
	refused(w, &second, not_named);
	name_cgroup(w, w->name);
	accepted(w, &first);
	refused(w, &second, never);
	peer_end(&first);
	let_the_kernel_tell(w);
	join(w, second.pid);
	accepted(w, &second);
	peer_end(&second);
	end(w);
}

/* Whatever is odd is not watched: then no other namespace is taken. */
static void not_watched(struct world *w, const struct peer *first)
{
	struct peer second = peer_new(w->rig, w->listener, "");

	accepted(w, first);
	refused(w, &second, not_named);
	peer_end(&second);
}

static void test_odd_names_are_refused(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w);
	char own[3][sizeof(w->path) + 8], longest[300];

	snprintf(own[0], sizeof(own[0]), "/%s", w->name);
	snprintf(own[1], sizeof(own[1]), "%s/../%s", w->name, w->name);
	snprintf(own[2], sizeof(own[2]), "%s\n\n", w->name);
	memset(longest, '/', sizeof(longest));
	memcpy(longest, w->name, strlen(w->name));
	longest[256] = '\0';
	const char *const odd[] = {
	    "", "\n", "..", ".", "a b", "cgroup.procs", own[0], own[1], own[2], w->path, longest};
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		name_cgroup(w, odd[i]);
		not_watched(w, &first);
	}
	longest[255] = '\0'; /* the longest one is taken, and so is a line feed */
	name_cgroup(w, longest);
	accepted(w, &first);
	peer_end(&first);
	end(w);
}

static void test_only_roots_own_file_counts(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w);

	assert_int_equal(chmod(named_in(w), 0622), 0);
	not_watched(w, &first);
	name_cgroup(w, w->name);
	assert_int_equal(chown(named_in(w), 1337, 0), 0);
	not_watched(w, &first);
	peer_end(&first);
	end(w);
}

/* A link below the root, and a root that is none. */
static void test_only_below_the_cgroup_root(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w);
	char text[PATH_MAX];

	w->rig->o.cgroup_root = w->rig->top;
	rig_shell("ln -s %s %s/link", w->root, w->rig->top);
	snprintf(text, sizeof(text), "link/%s", w->name);
	name_cgroup(w, text);
	not_watched(w, &first);
	rig_shell(
	    "mkdir %s/fake && echo populated 1 > %s/fake/cgroup.events", w->rig->top, w->rig->top);
	name_cgroup(w, "fake\n");
	not_watched(w, &first);
	w->rig->o.cgroup_root = w->root;
	snprintf(text, sizeof(text), "%s\n", w->name);
	name_cgroup(w, text);
	accepted(w, &first);
	peer_end(&first);
	end(w);
}

/* Nobody is in it. */
static void test_an_empty_cgroup_is_not_the_pods(void **state)
{
	struct world *w = begin(state);
	struct peer first = peer_new(w->rig, w->listener, "");
	struct link_packet reply;

	name_cgroup(w, "not/there");
	reply = rig_ask(w->rig, peer_of(&rig_pod, first.accepted), NULL);
	assert_int_equal(reply.code, EACCES);
	assert_string_equal(reply.why, "the pod's cgroup does not exist");
	name_cgroup(w, w->name);
	rig_refused(w->rig, peer_of(&rig_pod, first.accepted), EACCES, "not in the pod's cgroup");
	peer_end(&first);
	end(w);
}

/* --- what outlives a broker --- */

static void another_broker(struct world *w)
{
	rig_stop(w->rig);
	close(w->listener);
	rig_start(w->rig);
	w->listener = make_listener(w->rig);
}

/* It could be anybody who comes first to a broker that knows nothing. */
static void test_a_restarted_broker_knows_the_namespace(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w), intruder, second;

	accepted(w, &first);
	another_broker(w);
	intruder = member(w);
	refused(w, &intruder, never);
	accepted(w, &first);
	peer_end(&first);
	peer_end(&intruder);
	let_the_kernel_tell(w);
	second = member(w);
	another_broker(w); /* it was empty while somebody watched, and is not any more */
	accepted(w, &second);
	peer_end(&second);
	end(w);
}

static void test_a_namespace_that_no_cgroup_vouches_for_is_kept_too(void **state)
{
	struct world *w = begin(state);
	struct peer first = peer_new(w->rig, w->listener, ""), other;

	unlink(named_in(w));
	accepted(w, &first);
	another_broker(w);
	other = peer_new(w->rig, w->listener, "");
	refused(w, &other, not_named);
	accepted(w, &first);
	rig_do(w->rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	another_broker(w); /* the pod is another one now */
	peer_end(&other);
	other = peer_new(w->rig, w->listener, "");
	accepted(w, &other);
	peer_end(&first);
	peer_end(&other);
	end(w);
}

enum made_anew { LATER, EMPTY, BUSY };

/* While there is no broker the pod ends, and its cgroup is made anew. */
static struct peer restart_unseen(struct world *w, struct peer *p, enum made_anew how)
{
	pid_t other = 0;

	rig_stop(w->rig);
	close(w->listener);
	peer_end(p);
	remove_cgroup(w);
	if (how != LATER)
		make_cgroup(w);
	if (how == BUSY && !(other = fork())) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close_range(3, ~0U, 0);
		pause();
	}
	if (other)
		join(w, other);
	rig_start(w->rig);
	w->listener = make_listener(w->rig);
	if (how == LATER)
		make_cgroup(w);
	struct peer again = member(w);
	accepted(w, &again);
	if (other)
		kill(other, SIGKILL), waitpid(other, NULL, 0);
	return again;
}

/* Nobody watched, but another cgroup, none, or an empty one tells. */
static void test_a_restart_while_there_was_no_broker(void **state)
{
	struct world *w = begin(state);
	struct peer p = member(w);

	accepted(w, &p);
	for (int how = LATER; how <= BUSY; how++)
		p = restart_unseen(w, &p, (enum made_anew)how);
	peer_end(&p);
	end(w);
}

static void on_emptied(void *ctx)
{
	*(int *)ctx += 1;
}

static void test_what_cannot_be_looked_at_is_not_empty(void **state)
{
	struct world *w = begin(state);
	struct peer p = member(w);
	int emptied = 0, dir = open(w->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct pod_cgroup c = {
	    .epoll = broker_epoll(w->rig->b), .on_emptied = on_emptied, .ctx = &emptied};
	struct rlimit files;
	struct stat st;

	assert_int_equal(fstat(dir, &st), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, files.rlim_max}), 0);
	pod_cgroup_resume(&c, dir, st.st_ino);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_false(pod_cgroup_emptied(&c));
	pod_cgroup_resume(&c, dir, st.st_ino);
	assert_true(!pod_cgroup_emptied(&c) && c.state == POD_CGROUP_WATCHED);
	assert_int_equal(emptied, 0);
	pod_cgroup_resume(&c, dir, st.st_ino + 1);
	assert_true(emptied == 1 && pod_cgroup_emptied(&c));
	pod_cgroup_end(&c);
	close(dir);
	peer_end(&p);
	end(w);
}

/* --- the policy --- */

static struct link_packet answer_if_required(struct world *w, const struct peer *p)
{
	return rig_ask(w->rig,
	    (struct rig_ask){
		.op = LINK_PEER_OF, .pod = &rig_pod, .fd = p->accepted, .arg = LINK_ATTEST_REQUIRE},
	    NULL);
}

/* And nothing is learned from who is refused. */
static void test_what_cannot_be_known_may_be_refused(void **state)
{
	struct world *w = begin(state);
	struct peer unknown = peer_new(w->rig, w->listener, ""), first = member(w);
	struct link_packet reply;
	struct stat st;

	unlink(named_in(w));
	reply = answer_if_required(w, &unknown);
	assert_int_equal(reply.code, ENODATA);
	assert_non_null(strstr(reply.why, "no <uid>/cgroup"));
	name_cgroup(w, w->name);
	reply = answer_if_required(w, &first);
	assert_int_equal(reply.code, 0);
	assert_string_equal(reply.why, "");
	assert_int_equal(stat(w->path, &st), 0);
	assert_int_equal(reply.cgroup_id, st.st_ino);
	unlink(named_in(w));
	reply = rig_ask(w->rig, peer_of(&rig_pod, first.accepted), NULL);
	assert_int_equal(reply.code, 0);
	assert_int_equal(reply.cgroup_id, 0);
	assert_non_null(strstr(reply.why, "no <uid>/cgroup"));
	peer_end(&unknown);
	peer_end(&first);
	end(w);
}

/* --- a volume of a pod that runs --- */

static void again(const struct world *w, enum link_op op)
{
	rig_do(w->rig, (struct rig_ask){.op = op, .pod = &rig_pod});
}

static void late(const struct world *w)
{
	rig_refused(w->rig, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod}, ESTALE,
	    "its Envoy still has the previous one");
}

/* By somebody, and by us, while it runs. */
static void removed_and_put_back(const struct world *w, const char *kubelet)
{
	char mount[RIG_PATH];

	snprintf(mount, sizeof(mount), "%s/pods/%s/mount", w->rig->run, rig_pod_text);
	w->rig->o.kubelet_root = kubelet;
	rig_shell("rm -r %s", mount);
	while (access(mount, F_OK))
		broker_turn(w->rig->b, 1000);
	w->rig->o.kubelet_root = NULL;
	rig_expect(w->rig, LINK_POD_NOTE, NULL);
}

/* The kubelet starts no process before the volumes are mounted: who runs has an earlier one. */
static void test_a_directory_that_is_made_under_a_running_pod(void **state)
{
	struct world *w = begin(state);
	struct peer first = member(w);
	static char kubelet[RIG_PATH];

	again(w, LINK_POD_REMOVE);
	again(w, LINK_POD_ADD); /* of a manifest, which may be written for who runs already */
	snprintf(kubelet, sizeof(kubelet), "%s/kubelet", w->rig->top);
	rig_shell("mkdir -p %s/pods/%s/volumes/kubernetes.io~csi/mesh", kubelet, rig_pod_text);
	again(w, LINK_POD_REMOVE);
	w->rig->o.kubelet_root = kubelet;
	late(w);
	late(w);
	w->rig->o.kubelet_root = NULL; /* it is looked at when the directory is made, no more */
	rig_stop(w->rig);
	rig_start(w->rig);
	late(w);
	accepted(w, &first);
	again(w, LINK_POD_ADD);
	removed_and_put_back(w, kubelet);
	again(w, LINK_POD_ADD);
	again(w, LINK_POD_REMOVE); /* with a volume it would be refused */
	w->rig->o.kubelet_root = kubelet;
	late(w);
	peer_end(&first);
	again(w, LINK_POD_REMOVE);
	again(w, LINK_POD_ADD); /* nobody runs */
	w->rig->o.kubelet_root = NULL;
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_a_restarted_pod_may_have_a_new_namespace),
	    T(test_a_cgroup_made_anew_is_a_restart),
	    T(test_a_removed_cgroup_keeps_nobody_awake),
	    T(test_the_same_namespace_begins_anew),
	    T(test_a_cgroup_may_be_named_later),
	    T(test_odd_names_are_refused),
	    T(test_only_roots_own_file_counts),
	    T(test_only_below_the_cgroup_root),
	    T(test_an_empty_cgroup_is_not_the_pods),
	    T(test_what_cannot_be_looked_at_is_not_empty),
	    T(test_a_restarted_broker_knows_the_namespace),
	    T(test_a_namespace_that_no_cgroup_vouches_for_is_kept_too),
	    T(test_a_restart_while_there_was_no_broker),
	    T(test_what_cannot_be_known_may_be_refused),
	    T(test_a_directory_that_is_made_under_a_running_pod),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
