/* manifest_test.c - files in, files out; what is there already stays as it is.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c agentd/ctl/command.c agentd/ctl/cluster_env.c agentd/ctl/machine.c agentd/ctl/manifest.c
 */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include "machine_files.h"

#define TOKEN "aaa.bbb.ccc\n"

static char top[32], from[48], to[48];

static void put(const char *name, const char *text)
{
	auto_free char *path = mem_printf("%s/%s", from, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/manifest_test.XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(from, sizeof(from), "%s/from", top);
	snprintf(to, sizeof(to), "%s/to", top);
	assert_int_equal(mkdir(from, 0700) | mkdir(to, 0755), 0);
	put("cluster.env", CLUSTER_ENV);
	put("mesh.yaml", MESH_YAML);
	put("istio-token", TOKEN);
	put("hosts", "10.1.2.3 istiod.istio-system.svc\n");
	put("root-cert.pem", "x");
	return 0;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	return nftw(top, drop, 8, FTW_DEPTH | FTW_PHYS);
}

static const struct printed *run(bool json)
{
	const struct ctl_given given[] = {
	    {"from", from}, {"to", to}, {"name", "vm-1"}, {NULL, NULL}};

	return run_asked(ctl_manifest.run, (struct ctl){.options = given, .json = json});
}

/* What the answer calls `key`. */
static json_t *answer(void)
{
	const struct printed *p = run(true);
	json_t *o = json_loads(p->out, 0, NULL);

	if (p->status != CTL_OK)
		fail_msg("%s", p->err);
	assert_non_null(o);
	return o;
}

static void content_is(const char *path, const char *expected)
{
	char text[64 << 10] = "";
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	if (!strstr(text, expected))
		fail_msg("%s: %s", path, text);
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static unsigned entries(void)
{
	auto_free char *list = mem_printf("ls -A %s | wc -l", to);
	FILE *f = popen(list, "r");
	unsigned n = 99;

	assert_int_equal(fscanf(f, "%u", &n), 1);
	pclose(f);
	return n;
}

static void a_manifest_and_its_token_are_written(void **state)
{
	json_t *o = answer();
	const char *token = json_string_value(json_object_get(o, "token"));
	const char *manifest = json_string_value(json_object_get(o, "manifest"));
	auto_free char *folder = mem_strdup(token);

	(void)state;
	content_is(manifest, "namespace: \"vm\"");
	content_is(token, TOKEN);
	assert_int_equal(mode_of(token), 0600);
	assert_int_equal(mode_of(manifest), 0600);
	*strrchr(folder, '/') = '\0';
	assert_int_equal(mode_of(folder), 0700);
	assert_int_equal(entries(), 2); /* nothing temporary */
	json_decref(o);
}

static void what_is_left_to_do_is_printed(void **state)
{
	const struct printed *p = run(false);

	(void)state;
	assert_int_equal(p->status, CTL_OK);
	assert_non_null(strstr(p->out, "- {name: istiod, address: "));
	assert_non_null(strstr(p->out, "10.1.2.3 istiod.istio-system.svc"));
	assert_non_null(strstr(p->out, "root-cert.pem"));
	assert_non_null(strstr(p->out, "CANONICAL_SERVICE: "));
	assert_null(strstr(p->out, "aaa.bbb")); /* the token */
}

static void a_second_run_writes_nothing(void **state)
{
	json_t *o = answer();
	const char *token = json_string_value(json_object_get(o, "token"));
	const struct printed *p;

	(void)state;
	put("istio-token", "other");
	p = run(false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->err, "is there already"));
	content_is(token, TOKEN);
	json_decref(o);
}

/* Its manifest was taken away, its directory was not. */
static void a_directory_that_is_there_is_left_alone(void **state)
{
	json_t *o = answer();

	(void)state;
	assert_int_equal(unlink(json_string_value(json_object_get(o, "manifest"))), 0);
	put("istio-token", "other");
	assert_int_equal(run(false)->status, CTL_PROBLEM);
	content_is(json_string_value(json_object_get(o, "token")), TOKEN);
	assert_int_equal(entries(), 1);
	json_decref(o);
}

static void files_that_cannot_be_read_are_named(void **state)
{
	static const char *const names[] = {"cluster.env", "mesh.yaml", "istio-token"};
	const struct printed *p;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		auto_free char *path = NULL;

		teardown(NULL);
		setup(NULL);
		path = mem_printf("%s/%s", from, names[i]);
		unlink(path);
		p = run(false);
		assert_int_equal(p->status, CTL_PROBLEM);
		assert_non_null(strstr(p->err, names[i]));
		assert_int_equal(mkdir(path, 0700), 0);
		assert_non_null(strstr(run(false)->err, "is not a regular file"));
		assert_int_equal(entries(), 0);
	}
}

static void it_wants_a_directory(void **state)
{
	(void)state;
	assert_int_equal(run_asked(ctl_manifest.run, (struct ctl){0})->status, CTL_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_manifest_and_its_token_are_written, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_is_left_to_do_is_printed, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_second_run_writes_nothing, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		a_directory_that_is_there_is_left_alone, setup, teardown),
	    cmocka_unit_test_setup_teardown(files_that_cannot_be_read_are_named, setup, teardown),
	    cmocka_unit_test(it_wants_a_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
