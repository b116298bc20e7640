/* agent_state_test.c - which stored text goes where: to a cache, away, or nowhere.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/ca_client.c
 * LINK: tests/fake/x509.c tests/fake/secrets.c tests/fake/link.c tests/fake/link_redirect.c tests/unit/worker/certs/cert_world.c
 */
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/secrets.h"
#include "tests/unit/worker/certs/cert_world.h"
#include "worker/agent_state.h"
#include "worker/certs/store.h"
#include "worker/pod/pod_services.h"
#include <stdio.h>
#include <string.h>

static struct plane plane;
static struct agent_shared shared;
static struct agent_state *reading;
static unsigned done;

static int setup(void **state)
{
	world_setup(state);
	plane = (struct plane){.istiod = w.istiod, .ca = w.ca};
	shared = (struct agent_shared){
	    .loop = w.loop, .link = fake_link(), .planes = &plane, .node.nplanes = 1};
	struct cert_cache_options o = {
	    .reissue_min_ms = FLOOR_MS, .linger_ms = LINGER_MS, .link = shared.link};
	cert_cache_free(&w.cache);
	w.options = o;
	w.cache = plane.certs = cert_cache_new(w.loop, w.istiod, w.ca, &w.options);
	done = 0;
	return 0;
}

static int teardown(void **state)
{
	agent_state_free(&reading);
	world_teardown(state);
	link_free(&shared.link);
	assert_int_equal(secrets_freed(), 0);
	return 0;
}
#define STATE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void on_done(void *ctx)
{
	(void)ctx;
	done++;
	agent_state_free(&reading);
}

/* A good one of this account, kept here. */
static void keep(const char *sa, enum link_state where, const char *of_plane)
{
	char chain[256], key[] = "SECRET KEY 7";
	struct cert_stored s;
	uint8_t id[X509_SHA256_SIZE];
	int64_t now_s = loop_now_ms(w.loop) / 1000;
	int n;

	memset(&s, 0, sizeof(s));
	strcpy(s.origin.name, of_plane);
	strcpy(s.origin.address, w.plane.address);
	strcpy(s.origin.trust_domain, w.plane.trust_domain);
	strcpy(s.spec.ns, "demo");
	strcpy(s.spec.sa, sa);
	s.spec.ttl_s = TTL_S;
	s.spec.ratio = 0.5;
	s.issued_ms = now_s * 1000;
	s.renew_at_ms = (now_s + TTL_S / 2) * 1000;
	s.key_pem = key;
	s.chain_pem = chain;
	n = snprintf(chain, sizeof(chain), "LEAF 77 7 spiffe://td/ns/demo/sa/%s %lld %lld\n", sa,
	    (long long)now_s - 60, (long long)now_s + TTL_S);
	s.n = 2;
	s.element_size[0] = (size_t)n;
	s.element_size[1] = strlen("ROOT\n");
	strcat(chain, "ROOT\n");
	cert_store_id(&s.origin, &s.spec, id);
	struct link_kept k = {.kind = where, .id = id};
	char *text = cert_store_write(&s, &k.size);
	k.data = text;
	fake_link_keep(shared.link, &k);
	mem_wipe_free(text);
}

static void keep_text(uint8_t name, const char *text)
{
	uint8_t id[X509_SHA256_SIZE] = {name};
	struct link_kept k = {
	    .kind = LINK_STATE_CERT, .id = id, .data = text, .size = strlen(text)};

	fake_link_keep(shared.link, &k);
}

static void restore(enum link_state where)
{
	reading = agent_state_restore(&shared, where, on_done, NULL);
	fake_link_listed(shared.link, where, NULL);
	assert_int_equal(done, 0);
	fake_link_listed(shared.link, (where + 1) % LINK_STATE_CERTS_END, NULL);
	assert_int_equal(done, 1);
}

static bool has(const char *sa)
{
	struct pod *p = pod_of("p", sa);
	bool there;

	join(p);
	cert_wanted(p->sub);
	later(0);
	there = p->has;
	if (there)
		assert_string_equal(p->serial, "77");
	return there;
}

static void a_good_one_is_back(void **state)
{
	(void)state;
	keep("web", LINK_STATE_CERT, "istiod");
	keep("db", LINK_STATE_CERT, "istiod");
	restore(LINK_STATE_CERT);
	assert_true(has("web"));
	assert_true(has("db"));
	assert_int_equal(asked(), 0);
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT), 2);
}

static void what_is_no_good_is_deleted(void **state)
{
	(void)state;
	keep_text(1, "");
	keep_text(2, "version: 1\nsha256: 00\n");
	keep("web", LINK_STATE_CERT, "another");
	restore(LINK_STATE_CERT);
	assert_false(has("web"));
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT), 0);
}

/* A text under the name of another one: somebody copied a file. */
static void a_wrong_name_is_no_good(void **state)
{
	struct link_kept k;
	uint8_t id[X509_SHA256_SIZE] = {9}, right[X509_SHA256_SIZE];

	(void)state;
	keep("web", LINK_STATE_CERT, "istiod");
	k = fake_link_kept_at(shared.link, LINK_STATE_CERT, 0);
	k.id = id;
	fake_link_keep(shared.link, &k);
	memcpy(right, fake_link_kept_at(shared.link, LINK_STATE_CERT, 0).id, sizeof(right));
	link_state_del(shared.link, LINK_STATE_CERT, right);
	restore(LINK_STATE_CERT);
	assert_false(has("web"));
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT), 0);
}

/* It may come back and want it. */
static void what_a_newer_release_wrote_is_left_alone(void **state)
{
	(void)state;
	keep_text(1, "version: 2\nwhatever");
	restore(LINK_STATE_CERT);
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT), 1);
}

static void where_it_should_not_be_it_is_not_left(void **state)
{
	(void)state;
	keep("web", LINK_STATE_CERT_IN_MEMORY, "istiod");
	restore(LINK_STATE_CERT);
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT_IN_MEMORY), 0);
	fake_link_put(shared.link, NULL);
	assert_int_equal(fake_link_kept(shared.link, LINK_STATE_CERT), 1);
	assert_true(has("web"));
}

/* agentd starts without what cannot be read. */
static void a_list_that_fails_is_the_end_of_nothing(void **state)
{
	(void)state;
	reading = agent_state_restore(&shared, LINK_STATE_CERT, on_done, NULL);
	fake_link_listed(shared.link, LINK_STATE_CERT, "EIO");
	fake_link_listed(shared.link, LINK_STATE_CERT_IN_MEMORY, "EIO");
	assert_int_equal(done, 1);
}

static void it_can_be_given_up(void **state)
{
	(void)state;
	reading = agent_state_restore(&shared, LINK_STATE_CERT, on_done, NULL);
	agent_state_free(&reading);
	assert_int_equal(fake_link_live(shared.link), 0);
	agent_state_free(&reading);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    STATE_TEST(a_good_one_is_back),
	    STATE_TEST(what_is_no_good_is_deleted),
	    STATE_TEST(a_wrong_name_is_no_good),
	    STATE_TEST(what_a_newer_release_wrote_is_left_alone),
	    STATE_TEST(where_it_should_not_be_it_is_not_left),
	    STATE_TEST(a_list_that_fails_is_the_end_of_nothing),
	    STATE_TEST(it_can_be_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
