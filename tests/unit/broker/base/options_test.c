/* options_test.c - the broker's command line, and what goes on to the worker.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "common/flags.h"
#include "tests/unit/broker/rig.h"

static struct broker_options o;
static struct err why;

static int parse(char **argv)
{
	int argc = 0;

	broker_options_clear(&o);
	while (argv[argc])
		argc++;
	return broker_options_parse(&o, argc, argv, &why);
}
#define PARSE(...) parse((char *[]){"agentd", __VA_ARGS__ __VA_OPT__(, ) NULL})

static void expect_refused(int rc, const char *text)
{
	assert_int_equal(rc, -1);
	if (!strstr(why.msg, text))
		fail_msg("\"%s\" lacks \"%s\"", why.msg, text);
}

static void expect_passed_on(const char *wanted)
{
	char got[512] = "";

	for (int i = 0; i < o.worker_argc; i++)
		sprintf(got + strlen(got), "%s%s", i ? " " : "", o.worker_argv[i]);
	assert_string_equal(got, wanted);
}

static void test_defaults(void **state)
{
	(void)state;
	assert_int_equal(PARSE(), 0);
	assert_int_equal(o.mode, BROKER_RUN);
	assert_string_equal(o.run, "/run/agentd");
	assert_string_equal(o.manifests, "/etc/agentd/pods.d");
	assert_string_equal(o.config, "/etc/agentd/agentd.yaml");
	assert_false(o.config_named);
	assert_true(o.bare);
	assert_string_equal(o.worker_user, "agentd");
	assert_null(o.cgroup_root);
	assert_null(o.kubelet_root);
	assert_null(o.kubepods);
	assert_null(o.redirect_cgroup);
	assert_int_equal(o.max_pods, 1024);
	for (int i = 0; i < LINK_PLANES_MAX; i++)
		assert_null(o.root_files[i]);
	expect_passed_on("agentd-worker");
}

/* --check is then about the agentd that runs. */
static void test_bare_is_a_mode_and_where(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--check", "--connect", "--run", "/run/other"), 0);
	assert_true(o.bare);
	assert_int_equal(PARSE("--check", "--redirect"), 0);
	assert_false(o.bare);
	assert_int_equal(PARSE("--check", "--cluster-domain=b"), 0); /* the worker's */
	assert_false(o.bare);
	assert_int_equal(PARSE("--check", "word"), 0);
	assert_false(o.bare);
}

/* A directory of manifests that nobody asked for must not be waited for. */
static void test_a_kubelet_takes_the_manifests_place(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--kubelet-root", "/var/lib/kubelet"), 0);
	assert_string_equal(o.kubelet_root, "/var/lib/kubelet");
	assert_null(o.manifests);
	assert_int_equal(PARSE("--manifests=/m", "--kubelet-root=/k"), 0);
	assert_string_equal(o.kubelet_root, "/k");
	assert_string_equal(o.manifests, "/m");
	expect_refused(PARSE("--kubelet-root", "var"), "absolute path");
	expect_passed_on("agentd-worker");
}

static void test_both_spellings(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--run", "/r", "--manifests=/m", "--config", "c.yaml",
			     "--cgroup-root=/c", "--worker-user", "nobody", "--max-pods=7",
			     "--root-file", "0=/a", "--root-file=15=/b=c", "--crl-file=15=/crl",
			     "--kubepods", "k.slice/k-kubepods.slice"),
	    0);
	assert_string_equal(o.kubepods, "k.slice/k-kubepods.slice");
	assert_string_equal(o.run, "/r");
	assert_string_equal(o.manifests, "/m");
	assert_string_equal(o.config, "c.yaml");
	assert_true(o.config_named);
	assert_string_equal(o.cgroup_root, "/c");
	assert_string_equal(o.worker_user, "nobody");
	assert_int_equal(o.max_pods, 7);
	assert_string_equal(o.root_files[0], "/a");
	assert_string_equal(o.root_files[15], "/b=c");
	assert_null(o.crl_files[0]);
	assert_string_equal(o.crl_files[15], "/crl");
	expect_passed_on("agentd-worker");
}

/* In order, with their values; and what is no flag at all. */
static void test_the_rest_is_the_workers(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--log-level", "debug", "--run", "/r", "--node-name=n",
			     "--ip-family", "--run", "--pcds", "-v", "word", "--log-json=false"),
	    0);
	assert_string_equal(o.run, "/r");
	assert_string_equal(o.log_level, "debug");
	expect_passed_on("agentd-worker --log-level debug --node-name=n --ip-family --run --pcds "
			 "-v word --log-json=false");
}

/* Never taken for ours by abbreviation; the hint is from both programs' flags. */
static void test_what_is_misspelt(void **state)
{
	(void)state;
	expect_refused(PARSE("--ru", "/r"), "--ru: no such flag; nearest: --run");
	expect_refused(PARSE("--runs=/y"), "--runs: no such flag; nearest: --run");
	expect_refused(PARSE("--nodename=n"), "nearest: --node-name");
	expect_refused(PARSE("--kubelet_root=/k"), "nearest: --kubelet-root");
	expect_refused(PARSE("--control-planes=x"), "no such flag");
	expect_refused(PARSE("--node-name"), "--node-name needs a value: TEXT");
	expect_refused(PARSE("--"), "--: no such flag");
}

/* The broker's switch and the worker's key have one name. */
static void test_redirect_is_one_flag(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--redirect"), 0);
	assert_true(o.redirect);
	expect_passed_on("agentd-worker");
	assert_int_equal(PARSE("--redirect=ebpf", "--run=/r"), 0);
	assert_true(o.redirect);
	expect_passed_on("agentd-worker --redirect=ebpf");
	assert_int_equal(PARSE("--redirect=istio-cni"), 0);
	assert_false(o.redirect);
	expect_passed_on("agentd-worker --redirect=istio-cni");
	assert_int_equal(PARSE("--redirect", "--redirect=none"), 0);
	assert_false(o.redirect);
	expect_refused(PARSE("--redirect="), "--redirect needs a value");
}

/* Each flag of the list is heeded here or passed on, as the list says. */
static void test_every_flag_has_its_place(void **state)
{
	static const char *const values[] = {"/x", "0=/x", "127.0.0.1:1", "1", "x", "info", NULL};
	char arg[80];

	(void)state;
	for (unsigned i = 0; i < flags_count; i++) {
		const struct flag *f = &flags_list[i];
		const char *const *v = values;
		if (f->kind == FLAG_LIST || !strcmp(f->name, "connect")) /* which needs --check */
			continue;
		snprintf(arg, sizeof(arg), "--%s", f->name);
		while (*v && PARSE(arg))
			snprintf(arg, sizeof(arg), "--%s=%s", f->name, *v++);
		if (!*v)
			fail_msg("%s: %s", f->name, why.msg);
		assert_int_equal(
		    o.worker_argc, 1 + (f->whose != FLAG_BROKER && f->kind != FLAG_OPTIONAL));
	}
}

static void test_modes(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--check"), 0);
	assert_int_equal(o.mode, BROKER_CHECK);
	assert_int_equal(PARSE("--help"), 0);
	assert_int_equal(o.mode, BROKER_HELP);
	assert_int_equal(PARSE("--version"), 0);
	assert_int_equal(o.mode, BROKER_SHOW_VERSION);
	assert_int_equal(PARSE("--check-state"), 0);
	assert_int_equal(o.mode, BROKER_CHECK_STATE);
	assert_false(o.take_over || o.no_privsep);
	expect_refused(PARSE("--check=yes"), "--check takes no value");
	assert_int_equal(PARSE("--connect", "--check"), 0);
	assert_true(o.connect && o.mode == BROKER_CHECK);
	assert_int_equal(o.worker_argc, 1);
	expect_refused(PARSE("--connect"), "--connect belongs to --check");
}

static void test_switches(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--take-over"), 0);
	assert_true(o.take_over && !o.linger && !o.no_privsep && o.mode == BROKER_RUN);
	assert_int_equal(PARSE("--linger"), 0);
	assert_true(o.linger && !o.take_over);
	assert_int_equal(PARSE("--no-privsep"), 0);
	assert_true(o.no_privsep && !o.take_over);
	expect_refused(PARSE("--take-over=yes"), "--take-over takes no value");
}

static void test_what_is_wrong_is_said(void **state)
{
	char longer[1100];

	(void)state;
	expect_refused(PARSE("--run"), "--run needs a value: DIR");
	expect_refused(PARSE("--run="), "--run needs a value");
	expect_refused(PARSE("--run", "relative"), "absolute path, not \"relative\"");
	expect_refused(PARSE("--manifests=x"), "absolute");
	expect_refused(PARSE("--kubepods=/kubepods"), "path below the cgroup root");
	expect_refused(PARSE("--kubepods=kubepods/"), "path below the cgroup root");
	expect_refused(PARSE("--kubepods=a//b"), "path below the cgroup root");
	expect_refused(PARSE("--kubepods=a/../b"), "path below the cgroup root");
	expect_refused(PARSE("--kubepods=a b"), "path below the cgroup root");
	expect_refused(PARSE("--max-pods=0"), "1 to 65536");
	expect_refused(PARSE("--max-pods=65537"), "1 to 65536");
	expect_refused(PARSE("--max-pods=-1"), "1 to 65536");
	expect_refused(PARSE("--max-pods=1x"), "1 to 65536");
	expect_refused(PARSE("--max-pods= 1"), "1 to 65536");
	expect_refused(PARSE("--max-pods=99999999999999999999"), "1 to 65536");
	expect_refused(PARSE("--metrics=15091"), "an address and a port, like 127.0.0.1:15091");
	expect_refused(PARSE("--metrics"), "--metrics needs a value: ADDR:PORT");
	expect_refused(PARSE("--root-file=/a"), "INDEX=FILE");
	expect_refused(PARSE("--root-file=16=/a"), "0 to 15");
	expect_refused(PARSE("--root-file=-1=/a"), "0 to 15");
	expect_refused(PARSE("--root-file==/a"), "0 to 15");
	expect_refused(PARSE("--root-file=100000000=/a"), "0 to 15");
	expect_refused(PARSE("--root-file=0=a"), "absolute");
	expect_refused(PARSE("--root-file=0="), "absolute");
	expect_refused(PARSE("--root-file=0=/a/"), "is a directory");
	expect_refused(PARSE("--crl-file=16=/a"), "--crl-file needs INDEX=FILE");
	expect_refused(PARSE("--crl-file=0=a"), "--crl-file INDEX= needs an absolute path");
	expect_refused(PARSE("--crl-file=0=/a/"), "--crl-file: /a/ is a directory");
	expect_refused(PARSE("--crl-file=3=/a", "--crl-file=3=/b"), "--crl-file 3 is given twice");
	expect_refused(PARSE("--root-file=3=/a", "--root-file=3=/b"), "given twice");
	memset(longer, 'x', sizeof(longer));
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	expect_refused(PARSE("--manifests", longer), "1024 bytes");
	longer[48] = '\0';
	expect_refused(PARSE("--run", longer), "sockets in it would not fit");
	longer[47] = '\0';
	assert_int_equal(PARSE("--run", longer), 0);
}

static void test_worker_user(void **state)
{
	struct broker_user u;

	(void)state;
	assert_int_equal(PARSE("--worker-user=nobody"), 0);
	assert_int_equal(broker_options_user(&o, &u, &why), 0);
	assert_true(u.known && u.uid == 65534 && u.gid == 65534);
	assert_int_equal(PARSE("--worker-user=4711"), 0);
	assert_int_equal(broker_options_user(&o, &u, &why), 0);
	assert_true(u.known && u.uid == 4711 && u.gid == 4711);
	assert_int_equal(PARSE("--worker-user=no-such-user"), 0);
	assert_int_equal(broker_options_user(&o, &u, &why), 0);
	assert_true(!u.known && u.uid == 1338 && u.gid == 1338);
	assert_int_equal(PARSE("--worker-user=root"), 0);
	expect_refused(broker_options_user(&o, &u, &why), "must not be root");
	assert_int_equal(PARSE("--worker-user=0"), 0);
	expect_refused(broker_options_user(&o, &u, &why), "must not be root");
	assert_int_equal(PARSE("--worker-user=1337"), 0);
	expect_refused(broker_options_user(&o, &u, &why), "Envoy");
	assert_int_equal(PARSE("--worker-user=4294967295"), 0); /* (uid_t)-1 would change nothing */
	assert_int_equal(broker_options_user(&o, &u, &why), 0);
	assert_false(u.known);
	broker_options_clear(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_defaults),
	    cmocka_unit_test(test_bare_is_a_mode_and_where),
	    cmocka_unit_test(test_a_kubelet_takes_the_manifests_place),
	    cmocka_unit_test(test_both_spellings),
	    cmocka_unit_test(test_the_rest_is_the_workers),
	    cmocka_unit_test(test_what_is_misspelt),
	    cmocka_unit_test(test_redirect_is_one_flag),
	    cmocka_unit_test(test_every_flag_has_its_place),
	    cmocka_unit_test(test_modes),
	    cmocka_unit_test(test_switches),
	    cmocka_unit_test(test_what_is_wrong_is_said),
	    cmocka_unit_test(test_worker_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
