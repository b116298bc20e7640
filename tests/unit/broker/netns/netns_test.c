/* netns_test.c - real network namespaces: whose is behind a connection, what is in it.
 * LINK: tests/unit/broker/pods/peer.c tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/pods/peer.h"
#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>

static void expect_addresses(const struct link_packet *p, const char *wanted)
{
	char got[1024] = "", text[INET6_ADDRSTRLEN];

	for (uint32_t i = 0; i < p->naddresses; i++) {
		assert_non_null(
		    inet_ntop(p->addresses[i].family, p->addresses[i].bytes, text, sizeof(text)));
		sprintf(got + strlen(got), "%s%s", i ? " " : "", text);
	}
	assert_string_equal(got, wanted);
}

static ino_t own_netns(void)
{
	struct stat st;

	assert_int_equal(stat("/proc/self/ns/net", &st), 0);
	return st.st_ino;
}

static void test_cookie_is_the_one_the_worker_sees(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l, "");
	ino_t before = own_netns();
	struct link_packet reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);

	assert_int_equal(reply.code, 0);
	assert_int_equal(reply.netns_cookie, p.cookie);
	expect_addresses(&reply, "");
	assert_int_equal(own_netns(), before); /* it came back */
	peer_end(&p);
	close(l);
}

/* istio-agent.md 8.2: by interface in their order, up, no loopback, no link-local, once each. */
static void test_addresses_are_those_of_pilot_agent(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l,
	    "ip link set lo up && ip addr add 10.0.0.99/32 dev lo && "
	    "ip link add a0 type veth peer name a1 && ip link add b0 type veth peer name b1 && "
	    "ip link add c0 type veth peer name c1 && "
	    "for i in a0 a1 b0 b1 c1; do ip link set $i up; done && "
	    "ip addr add 10.1.0.2/24 dev b0 && ip addr add 10.1.0.3/24 dev b0 label b0:x && "
	    "ip addr add 169.254.9.9/16 dev b0 && ip -6 addr add fd00::b/64 dev b0 nodad && "
	    "ip addr add 10.2.0.2/24 dev a0 && ip -6 addr add 2001:db8::a/64 dev a0 nodad && "
	    "ip addr add 10.3.0.2/24 dev c0 && ip addr add 10.1.0.2/32 dev a1 && "
	    "ip addr add 10.4.0.1 peer 10.4.0.2 dev b1 && "
	    "ip -6 addr add fd01::1 peer fd01::2 dev b1 nodad");
	struct link_packet reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);

	assert_int_equal(reply.code, 0);
	/* a1 was made before a0, and b1 before b0: the kernel makes the peer first; c0 is down. */
	expect_addresses(&reply, "10.1.0.2 10.2.0.2 2001:db8::a 10.4.0.1 fd01::1 10.1.0.3 fd00::b");
	peer_end(&p);
	close(l);
}

/* Container engines make bridges before the network comes. */
static void test_a_machine_s_addresses_begin_where_its_routes_lead(void **state)
{
	static const char commands[] =
	    "ip link set lo up && ip link add docker0 type bridge && ip link add br1 type bridge "
	    "&& "
	    "for i in a b c; do ip link add ${i}0 type veth peer name ${i}1; done && "
	    "for i in docker0 br1 a0 a1 b0 b1 c0 c1; do ip link set $i up; done && "
	    "ip addr add 172.17.0.1/16 dev docker0 && ip addr add 172.18.0.1/16 dev br1 && "
	    "ip addr add 10.1.0.1/24 dev a0 && ip addr add 10.2.0.1/24 dev b0 && "
	    "ip addr add 10.3.0.1/24 dev c0 && ip -6 addr add fd00::c/64 dev c0 nodad";
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l, commands);
	struct link_packet reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);

	expect_addresses(&reply, "172.17.0.1 172.18.0.1 10.1.0.1 10.2.0.1 10.3.0.1 fd00::c");
	rig_shell("mkdir -p %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
	reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);
	expect_addresses(&reply, "10.1.0.1 10.2.0.1 10.3.0.1 fd00::c 172.17.0.1 172.18.0.1");
	rig_shell("nsenter --target %d --net sh -c '"
		  "ip route add default via 10.3.0.9 metric 100 && "
		  "ip route add default via 10.1.0.9 metric 200 && "
		  "ip route add 10.99.0.0/16 via 172.18.0.9 dev br1'",
	    p.pid);
	reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);
	expect_addresses(&reply, "10.3.0.1 fd00::c 172.18.0.1 10.1.0.1 10.2.0.1 172.17.0.1");
	peer_end(&p);
	close(l);
}

/* A pod may be root in its namespace and make more than anybody wants to read. */
static void test_addresses_are_bounded(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l,
	    "ip link add a0 type veth peer name a1 && ip link set a0 up && "
	    "for i in $(seq 0 4999); do echo addr add 10.1.$((i / 250)).$((i % 250 + 1))/16 dev "
	    "a0; "
	    "done | ip -batch -");
	struct link_packet reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);

	assert_int_equal(reply.code, 0);
	assert_int_equal(reply.naddresses, LINK_ADDRESSES_MAX);
	assert_int_equal(reply.addresses[15].bytes[3], 16); /* the first ones */
	peer_end(&p);
	close(l);
}

/* The connecting socket decides, so the answer survives its owner (process-split.md 2). */
static void test_a_dead_peer_still_has_a_namespace(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l, "");

	peer_kill(&p);
	struct link_packet reply = rig_ask(r, peer_of(&rig_pod, p.accepted), NULL);
	assert_int_equal(reply.code, 0);
	assert_int_equal(reply.netns_cookie, p.cookie);
	peer_end(&p);
	close(l);
}

static void test_the_nodes_own_namespace_is_refused(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l, NULL);

	rig_refused(r, peer_of(&rig_pod, p.accepted), EPERM, "the node's own network namespace");
	peer_end(&p);
	close(l);
}

static void refuses_home(struct rig *r)
{
	int conn[2], admin;

	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	rig_add(r);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, conn))
		_exit(4);
	rig_refused(r, peer_of(&rig_pod, conn[0]), EPERM, "own network namespace");
}

static void pass_on(void *ctx, const char *name, int fd)
{
	if (!strcmp(name, "host-netns"))
		broker_fdstore_found(ctx, name, dup(fd));
}

/* What a broker is that was executed anew: without the capability to look at pid 1. */
static void look_at_nobody(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, caps))
		_exit(5);
	caps[0].effective &= ~(1u << CAP_SYS_PTRACE);
	if (syscall(SYS_capset, &head, caps))
		_exit(6);
	/* 5.10 opens something else, in silence. */
	if (ioctl(open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC), NS_GET_NSTYPE) == CLONE_NEWNET)
		_exit(7);
}

/* Run in a broker whose own namespace is not that of pid 1: both are refused, by the broker that
 * comes after it, too. */
static void in_other_netns(struct rig *r)
{
	struct broker_fdstore *next = broker_fdstore_new();
	struct err e = {0};
	int conn[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, conn)) /* made in the namespace of pid 1 */
		_exit(1);
	rig_stop(r);
	snprintf(r->run, sizeof(r->run), "%s/run2", r->top); /* the first one is still locked */
	if (unshare(CLONE_NEWNET))
		_exit(2);
	for (int i = 0; i < 2; i++) {
		if (!(r->b = rig_broker(r, &e)))
			_exit(3);
		refuses_home(r);
		rig_refused(r, peer_of(&rig_pod, conn[0]), EPERM, "own network namespace");
		broker_fdstore_each(r->kept, BROKER_FDSTORE, pass_on, next);
		rig_stop(r);
		r->kept = next;
		look_at_nobody();
	}
	_exit(0);
}

/* Pid 1 of a pid namespace of its own: that of the machine may have more capabilities than we, and
 * then its namespaces are not ours to see. */
static int as_pid_1(struct rig *r)
{
	int status;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", 0, NULL))
		return 10;
	pid_t pid = fork();
	if (pid == 0)
		in_other_netns(r);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 11;
}

static void test_both_home_namespaces_are_refused(void **state)
{
	struct rig *r = *state;
	int status;

	pid_t outer = fork();
	assert_true(outer >= 0);
	if (outer == 0) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS))
			_exit(12);
		pid_t one = fork();
		if (one == 0)
			_exit(as_pid_1(r));
		_exit(waitpid(one, &status, 0) == one && WIFEXITED(status) ? WEXITSTATUS(status)
									   : 13);
	}
	assert_int_equal(waitpid(outer, &status, 0), outer);
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_the_first_namespace_wins(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer first = peer_new(r, l, ""), second = peer_new(r, l, "");

	assert_int_equal(rig_ask(r, peer_of(&rig_pod, first.accepted), NULL).code, 0);
	rig_refused(r, peer_of(&rig_pod, second.accepted), EPERM, "another network namespace");
	rig_refused(r, peer_of(&rig_pod, second.accepted), EPERM,
	    "give <uid>/cgroup beside the manifest: it tells a restarted pod from an "
	    "intruder; or remove the manifest and add it again");
	struct link_packet again = rig_ask(r, peer_of(&rig_pod, first.accepted), NULL);
	assert_int_equal(again.code, 0);
	assert_int_equal(again.netns_cookie, first.cookie);
	peer_end(&first);
	peer_end(&second);
	close(l);
}

/* i#61211: a namespace that another live pod owns; after that pod is removed it may be learned. */
static void test_a_namespace_is_one_pods(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer p = peer_new(r, l, "");

	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	assert_int_equal(rig_ask(r, peer_of(&rig_pod, p.accepted), NULL).code, 0);
	rig_refused(r, peer_of(&rig_other, p.accepted), EPERM, rig_pod_text);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(rig_ask(r, peer_of(&rig_other, p.accepted), NULL).code, 0);
	peer_end(&p);
	close(l);
}

static void test_remove_forgets_the_namespace(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r);
	struct peer first = peer_new(r, l, ""), second = peer_new(r, l, "");

	assert_int_equal(rig_ask(r, peer_of(&rig_pod, first.accepted), NULL).code, 0);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	rig_add(r);
	assert_int_equal(rig_ask(r, peer_of(&rig_pod, second.accepted), NULL).code, 0);
	peer_end(&first);
	peer_end(&second);
	close(l);
}

static void test_only_unix_stream_connections(void **state)
{
	struct rig *r = *state;
	int l = make_listener(r), pair[2];
	static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int file = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, pair), 0);
		rig_refused(r, peer_of(&rig_pod, pair[0]), EINVAL, "nor a stream of a unix socket");
		close(pair[0]);
		close(pair[1]);
	}
	rig_refused(r, peer_of(&rig_pod, tcp), EINVAL, "nor a stream of a unix socket");
	rig_refused(r, peer_of(&rig_pod, file), EINVAL, "nor a stream of a unix socket");
	rig_refused(
	    r, peer_of(&rig_pod, l), ENOTSOCK, "no unix stream connection"); /* a listener */
	close(tcp);
	close(file);
	close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_cookie_is_the_one_the_worker_sees),
	    T(test_addresses_are_those_of_pilot_agent),
	    T(test_a_machine_s_addresses_begin_where_its_routes_lead),
	    T(test_addresses_are_bounded),
	    T(test_a_dead_peer_still_has_a_namespace),
	    T(test_the_nodes_own_namespace_is_refused),
	    T(test_both_home_namespaces_are_refused),
	    T(test_the_first_namespace_wins),
	    T(test_a_namespace_is_one_pods),
	    T(test_remove_forgets_the_namespace),
	    T(test_only_unix_stream_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
