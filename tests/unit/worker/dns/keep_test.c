/* keep_test.c - name tables from one worker to the next, through what the broker keeps.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/link_redirect.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/uuid.h"
#include "tests/fake/link.h"
#include "tests/fake/link_redirect.h"
#include "tests/fake/loop.h"
#include "worker/dns/keep.h"
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ID_SIZE = LINK_STATE_ID_SIZE };

static const struct dns_zone demo = {"demo", "cluster.local"}, other = {"other", "cluster.local"};
static const struct uuid web = {{1}}, shop = {{2}}, gone = {{3}};
static const uint8_t index_id[ID_SIZE];

static struct world {
	struct loop *loop;
	struct link *link;
	struct dns_keep *keep;
	bool restored;
} w;

static void on_restored(void *ctx)
{
	(void)ctx;
	w.restored = true;
}

static void begin(void)
{
	w.keep = dns_keep_new(w.loop, w.link);
	w.restored = false;
	dns_keep_restore(w.keep, on_restored, NULL);
	fake_link_listed(w.link, LINK_STATE_NAMES, NULL);
	assert_true(w.restored);
}

static int setup(void **state)
{
	(void)state;
	w.loop = fake_loop();
	w.link = fake_link();
	begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	dns_keep_free(&w.keep);
	fake_loop_end(&w.loop);
	assert_int_equal(fake_link_live(w.link), 0);
	link_free(&w.link);
	return 0;
}

/* A table of one name; `size` more bytes that no reader looks at. */
static struct dns_table *put_more(
    const struct uuid *pod, const struct dns_zone *z, const char *name, size_t size)
{
	struct evbuffer *info = evbuffer_new(), *entry = evbuffer_new(), *table = evbuffer_new();
	auto_free char *more = mem_zalloc(size + 1);
	struct err e = {.code = 0};
	struct dns_table *t;
	struct pbwire r;

	pbwire_put_bytes(info, 1, "240.0.0.1", 9);
	pbwire_put_bytes(entry, 1, name, strlen(name));
	pbwire_put_bytes(entry, 2, evbuffer_pullup(info, -1), evbuffer_get_length(info));
	pbwire_put_bytes(table, 1, evbuffer_pullup(entry, -1), evbuffer_get_length(entry));
	pbwire_put_bytes(table, 9, more, size);
	const struct iovec bytes = {evbuffer_pullup(table, -1), evbuffer_get_length(table)};
	pbwire_init(&r, &bytes, 1);
	t = dns_keep_put(w.keep, pod, z, r, &e);
	evbuffer_free(info);
	evbuffer_free(entry);
	evbuffer_free(table);
	return t;
}

/* What it gives is given back. */
static struct dns_table *put(const struct uuid *pod, const struct dns_zone *z, const char *name)
{
	struct dns_table *t = put_more(pod, z, name, 0), *copy = t;

	assert_non_null(t);
	dns_table_unref(&copy);
	return t;
}

static bool has(const struct uuid *pod, const struct dns_zone *z, const char *name)
{
	struct dns_table *t = dns_keep_get(w.keep, pod, z);
	struct dns_found f;
	const bool found = t && dns_table_find(t, name, &f);

	dns_table_unref(&t);
	return found;
}

static int unanswered(void)
{
	return fake_link_waiting(w.link, LINK_STATE_PUT);
}

/* Until nothing waits: tables, then the index. */
static void store_all(void)
{
	for (int i = 0; i < 3; i++) {
		while (unanswered())
			fake_link_put(w.link, NULL);
		fake_loop_advance(w.loop, 1000);
	}
	assert_int_equal(unanswered(), 0);
}

static void next_worker(void)
{
	dns_keep_free(&w.keep);
	begin();
}

/* --- */

static void equal_ones_are_kept_once(void **state)
{
	struct dns_table *first, *second;

	(void)state;
	first = put(&web, &demo, "web.example");
	second = put(&shop, &demo, "web.example");
	assert_ptr_equal(first, second);
	assert_int_equal(unanswered(), 1);
	/* In another namespace the same bytes mean other names. */
	assert_ptr_not_equal(put(&gone, &other, "web.example"), first);
	assert_int_equal(unanswered(), 1);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2); /* the table, the index */
}

static void the_next_worker_has_them(void **state)
{
	(void)state;
	put(&web, &demo, "web.example");
	put(&shop, &other, "shop.example");
	store_all();
	next_worker();
	assert_true(has(&web, &demo, "web.example."));
	assert_true(has(&web, &demo, "web.example.")); /* and still */
	assert_false(has(&web, &demo, "shop.example."));
	assert_true(has(&shop, &other, "shop.example."));
	assert_false(has(&gone, &demo, "web.example."));
	dns_keep_settle(w.keep);
	assert_true(has(&web, &demo, "web.example."));
	assert_int_equal(unanswered(), 0); /* nothing has changed */
}

/* What the index names is there; what it named is there until it is written anew. */
static void the_index_is_between(void **state)
{
	(void)state;
	put(&web, &demo, "old.example");
	store_all();
	put(&web, &demo, "new.example");
	fake_link_put(w.link, NULL);
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 3);
	next_worker(); /* the index of its last breath did not come through */
	assert_true(has(&web, &demo, "old.example."));
	dns_keep_settle(w.keep);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
}

static void many_changes_are_one_index(void **state)
{
	char name[32];

	(void)state;
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "web%d.example", i);
		put(&web, &demo, name);
	}
	fake_link_put(w.link, NULL); /* one table is stored: who has one is told at once */
	fake_loop_advance(w.loop, 0);
	assert_int_equal(unanswered(), 9 + 1);
	while (unanswered())
		fake_link_put(w.link, NULL);
	fake_loop_advance(w.loop, 999);
	assert_int_equal(unanswered(), 0);
	fake_loop_advance(w.loop, 1);
	assert_int_equal(unanswered(), 1);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
	next_worker();
	assert_true(has(&web, &demo, "web9.example."));
}

static void a_pod_that_is_gone(void **state)
{
	(void)state;
	put(&web, &demo, "web.example");
	put(&gone, &demo, "gone.example");
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 3);
	dns_keep_forget(w.keep, &gone);
	dns_keep_forget(w.keep, &gone);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
	assert_false(has(&gone, &demo, "gone.example."));
	/* And one that went while no worker lived. */
	put(&gone, &demo, "gone.example");
	store_all();
	next_worker();
	assert_true(has(&web, &demo, "web.example."));
	dns_keep_settle(w.keep);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
	assert_true(has(&web, &demo, "web.example."));
}

static void not_stored_and_tried_again(void **state)
{
	(void)state;
	put(&web, &demo, "web.example");
	fake_link_put(w.link, "no space");
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 0);
	fake_loop_advance(w.loop, 9999);
	assert_int_equal(unanswered(), 0);
	fake_loop_advance(w.loop, 1);
	fake_link_put(w.link, "no space"); /* the table; and an index without it */
	fake_link_put(w.link, "no space");
	fake_loop_advance(w.loop, 10000);
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
	next_worker();
	assert_true(has(&web, &demo, "web.example."));
}

/* It is used, and not kept. */
static void too_large(void **state)
{
	struct dns_table *t = put_more(&web, &demo, "web.example", LINK_FILE_SIZE_MAX);

	(void)state;
	assert_non_null(t);
	dns_table_unref(&t);
	assert_true(has(&web, &demo, "web.example."));
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 1); /* an index of nobody */
	fake_loop_advance(w.loop, 100000);
	assert_int_equal(unanswered(), 0);
}

static void not_usable(void **state)
{
	static const struct iovec bytes = {(void *)"\x0a\xff", 2};
	struct err e = {.code = 0};
	struct pbwire r;

	(void)state;
	put(&web, &demo, "web.example");
	pbwire_init(&r, &bytes, 1);
	assert_null(dns_keep_put(w.keep, &web, &demo, r, &e));
	assert_string_equal(e.msg, "malformed NameTable");
	assert_true(has(&web, &demo, "web.example."));
	store_all();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
}

static int untold(void)
{
	return fake_link_waiting(w.link, LINK_REDIRECT_NAMES);
}

static bool is_told(const struct uuid *pod)
{
	const struct redirect_names_told *t = fake_redirect_names();

	for (uint64_t i = 0; i < t->npods; i++)
		if (!memcmp(t->pods[i].pod, pod, sizeof(*pod)))
			return t->pods[i].salt;
	return false;
}

/* Until all pods are here the programs know what an earlier worker told. */
static void the_programs_are_told(void **state)
{
	const struct redirect_names_told *t = fake_redirect_names();

	(void)state;
	put(&web, &demo, "web.example");
	put(&shop, &demo, "web.example");
	put(&gone, &other, "web.example");
	store_all();
	assert_int_equal(untold(), 0);
	dns_keep_settle(w.keep);
	assert_int_equal(untold(), 1);
	assert_int_equal(t->npods, 3);
	assert_true(is_told(&web) && is_told(&shop) && is_told(&gone));
	assert_int_equal(t->pods[0].salt, t->pods[1].salt);
	assert_int_not_equal(t->pods[0].salt, t->pods[2].salt); /* other short names */
	dns_keep_forget(w.keep, &gone);
	store_all();
	assert_int_equal(untold(), 1); /* one at a time */
	fake_redirect_named(w.link, NULL);
	assert_int_equal(untold(), 1);
	assert_int_equal(t->npods, 2);
	fake_redirect_named(w.link, NULL);
	assert_int_equal(untold(), 0);
	put(&web, &demo, "web.example"); /* nothing new */
	store_all();
	assert_int_equal(untold(), 0);
	put(&web, &demo, "new.example");
	store_all();
	assert_int_equal(untold(), 1);
	fake_redirect_named(w.link, "no");
	assert_int_equal(untold(), 0);
	fake_loop_advance(w.loop, 10000);
	store_all();
	assert_int_equal(untold(), 1); /* tried again */
	fake_redirect_named(w.link, NULL);
}

/* What somebody else wrote there. */
static void damaged(void **state)
{
	struct link_kept k = {.kind = LINK_STATE_NAMES, .id = (const uint8_t[ID_SIZE]){7}};

	(void)state;
	put(&web, &demo, "web.example");
	store_all();
	k.data = "not what its name says";
	k.size = strlen(k.data);
	fake_link_keep(w.link, &k);
	next_worker();
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_NAMES), 2);
	assert_true(has(&web, &demo, "web.example."));
	dns_keep_free(&w.keep);

	fake_link_forget(w.link);
	k.id = index_id;
	k.data = "an index that ends in the middle of a row and names nothing that is here";
	k.size = strlen(k.data);
	fake_link_keep(w.link, &k);
	begin();
	assert_false(has(&web, &demo, "web.example."));
	dns_keep_free(&w.keep);

	w.keep = dns_keep_new(w.loop, w.link);
	w.restored = false;
	dns_keep_restore(w.keep, on_restored, NULL);
	fake_link_listed(w.link, LINK_STATE_NAMES, "an error");
	assert_true(w.restored);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(equal_ones_are_kept_once),
	    TEST(the_next_worker_has_them),
	    TEST(the_index_is_between),
	    TEST(many_changes_are_one_index),
	    TEST(a_pod_that_is_gone),
	    TEST(not_stored_and_tried_again),
	    TEST(too_large),
	    TEST(not_usable),
	    TEST(the_programs_are_told),
	    TEST(damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
