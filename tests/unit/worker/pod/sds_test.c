/* sds_test.c - what the SDS server of a pod is told, and in which order.
 *
 * LINK: tests/unit/worker/pod/row_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "worker/certs/crl.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include "worker/sds/server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct pod pod = {.spec.label = "demo/web"};
static const struct agent_shared shared;
static const struct plane plane;
static struct pod_context context = {.shared = &shared, .plane = &plane, .pod = &pod};
static const struct pod_service *const row = &pod_sds_service;
static void *s;

static struct {
	char told[256];
	bool freed;
	const char *refused;
} world;

/* --- in place of the neighbours --- */

static struct sds_server *const server = (struct sds_server *)&world;

static void tell(const char *what, const char *a, const char *b)
{
	size_t n = strlen(world.told);

	snprintf(
	    world.told + n, sizeof(world.told) - n, "%s %s %s; ", what, a ? a : "-", b ? b : "-");
}

struct sds_server *sds_server_new(struct loop *l, const char *subject)
{
	(void)l;
	assert_string_equal(subject, "demo/web");
	return server;
}

void sds_server_follow(struct sds_server *at, const char *directories)
{
	assert_ptr_equal(at, server);
	tell("follow", directories, NULL);
}

void sds_server_free(struct sds_server **at)
{
	world.freed = *at != NULL;
	*at = NULL;
}

static struct revocation *const list = (struct revocation *)world.told;

void sds_server_set_trust(struct sds_server *at, const char *roots, struct revocation *crl)
{
	assert_ptr_equal(at, server);
	assert_ptr_equal(crl, list);
	tell("trust", roots, "CRL");
}

void sds_server_set_cert(struct sds_server *at, struct cert *c, const char *why_not)
{
	assert_ptr_equal(at, server);
	tell("cert", c ? "new" : NULL, why_not);
}

bool sds_server_incoming(struct sds_server *at, struct rpc_stream *st, const char *method)
{
	(void)st;
	assert_ptr_equal(at, server);
	return !strcmp(method, "ours");
}

unsigned sds_server_streams(const struct sds_server *at)
{
	assert_ptr_equal(at, server);
	return 3;
}

enum served sds_server_served(const struct sds_server *at, struct err *why)
{
	assert_ptr_equal(at, server);
	(void)why;
	return SERVED_HELD;
}

json_t *sds_server_dump(const struct sds_server *at)
{
	assert_ptr_equal(at, server);
	return json_string("dumped");
}

struct revocation *crl_in_force(const struct crl *c)
{
	(void)c;
	return list;
}

const char *crl_why_refused(const struct crl *c)
{
	(void)c;
	return world.refused;
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	context.roots = NULL;
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	return 0;
}

static void told(const char *what)
{
	assert_string_equal(world.told, what);
	world.told[0] = '\0';
}

static void nobody_is_told_before_the_directory(void **state)
{
	json_t *o;

	(void)state;
	row->trust(s);
	row->certificate(s, NULL, "why");
	told("");
	assert_int_equal(row->count(s), 0);
	assert_int_equal(row->served(s, NULL), SERVED_YES);
	o = row_show(row, s, NULL);
	assert_int_equal(json_object_size(o), 0);
	json_decref(o);
}

static void a_list_that_was_there_before(void **state)
{
	(void)state;
	row->directory(s);
	told("trust - CRL; ");
}

static void trust_and_certificate_are_told(void **state)
{
	(void)state;
	row->directory(s);
	world.told[0] = '\0';
	context.roots = "ROOTS";
	row->trust(s);
	row->certificate(s, (struct cert *)&world, "");
	row->certificate(s, NULL, "expired");
	told("trust ROOTS CRL; cert new ; cert - expired; ");
}

static void asked_and_looked_at(void **state)
{
	json_t *o;

	(void)state;
	row->directory(s);
	assert_true(row->call(s, NULL, "ours"));
	assert_false(row->call(s, NULL, "another"));
	assert_int_equal(row->count(s), 3);
	assert_int_equal(row->served(s, NULL), SERVED_HELD);
	o = row_show(row, s, NULL);
	assert_string_equal(json_string_value(json_object_get(o, "sds")), "dumped");
	json_decref(o);
	row_stop(row, &s);
	assert_true(world.freed);
}

/* Envoy ACKs such a list, and then refuses each peer. */
static void a_list_that_refuses_peers(void **state)
{
	struct err e = {0};

	(void)state;
	row->directory(s);
	world.refused = "it has ended";
	assert_int_equal(row->served(s, &e), SERVED_NO);
	assert_string_equal(e.msg, "Envoys refuse peers: revocation list: it has ended");
	world.refused = NULL;
	assert_int_equal(row->served(s, &e), SERVED_HELD);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(nobody_is_told_before_the_directory),
	    TEST(a_list_that_was_there_before),
	    TEST(trust_and_certificate_are_told),
	    TEST(asked_and_looked_at),
	    TEST(a_list_that_refuses_peers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
