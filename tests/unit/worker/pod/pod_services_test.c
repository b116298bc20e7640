/* pod_services_test.c - the table itself, with three rows of this test: what is started, told and
 * stopped, in which order.
 *
 * LINK: tests/fake/loop.c tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct plane plane;
static const struct agent_shared shared = {.planes = &plane};
static struct pod pod = {.spec.uid = {{1}}, .spec.label = "demo/web"};

static struct {
	char text[512];                        /* "first start, second start, ..." */
	const char *failing;                   /* the row whose start fails */
	struct pod_context *context;           /* as the first row has it */
	const struct redirect_plan *seen_plan; /* in start() */
	bool takes;                            /* the second row takes calls */
	bool node_freed;
	struct err state;              /* what the pod was told */
	char told[64];                 /* "ready, held, degraded, " */
	enum pod_progress progress[2]; /* of the first row, of the third */
	enum served served[2];
	bool troubled;
} world;

/* --- in place of the neighbours --- */

const struct node_settings *node_settings(const struct node *n)
{
	static const struct node_settings settings;

	(void)n;
	return &settings;
}

void node_free(struct node **n)
{
	*n = NULL;
	world.node_freed = true;
}

void pod_set_ready(struct pod *p, const struct err *why_not)
{
	assert_ptr_equal(p, &pod);
	strcat(world.told, why_not ? "held, " : "ready, ");
	world.state = why_not ? *why_not : (struct err){0};
}

void pod_set_degraded(struct pod *p, const struct err *why)
{
	assert_ptr_equal(p, &pod);
	strcat(world.told, "degraded, ");
	world.state = *why;
}

/* --- the rows --- */

struct its {
	struct pod_context *context;
	const char *name;
};

static void note(const char *row, const char *what)
{
	size_t n = strlen(world.text);

	snprintf(world.text + n, sizeof(world.text) - n, "%s%s %s", n ? ", " : "", row, what);
}

static int start_as(struct its *s, const char *name, struct err *e)
{
	s->name = name;
	note(name, "start");
	world.seen_plan = s->context->plan;
	if (world.failing && !strcmp(world.failing, name))
		return err_set(e, ERR_INVALID, "no room");
	return 0;
}

static int start_first(void *s, struct err *e)
{
	world.context = ((struct its *)s)->context;
	return start_as(s, "first", e);
}

static int start_second(void *s, struct err *e)
{
	return start_as(s, "second", e);
}

static int start_third(void *s, struct err *e)
{
	return start_as(s, "third", e);
}

#define NOTE(function)                                                                             \
	static void function(void *s)                                                              \
	{                                                                                          \
		note(((struct its *)s)->name, #function);                                          \
	}
NOTE(stop)
NOTE(stop_accepting)
NOTE(directory)
NOTE(redirected)
NOTE(token_given)
NOTE(trust)

static void lost(void *s, unsigned files)
{
	assert_int_equal(files, 2);
	note(((struct its *)s)->name, "lost");
}

static enum pod_progress progress(void *s, const struct err **why)
{
	static struct err of_first = {.code = 1, .msg = "first's"}, of_third = {1, "third's"};
	const bool first = !strcmp(((struct its *)s)->name, "first");
	enum pod_progress p = world.progress[!first];

	if (p >= POD_DEGRADED)
		*why = first ? &of_first : &of_third;
	return p;
}

static enum served served(void *s, struct err *why)
{
	const struct its *its = s;
	const enum served is = world.served[!!strcmp(its->name, "first")];

	if (is >= SERVED_HELD)
		err_set(why, ERR_UNAVAILABLE, "%s gives nothing", its->name);
	return is;
}

static void netns(void *s, bool known)
{
	note(((struct its *)s)->name, known ? "netns" : "no netns");
}

static void addresses(void *s, const char *const *ips, size_t n)
{
	assert_int_equal(n, 1);
	note(((struct its *)s)->name, ips[0]);
}

static void token(void *s, bool expired)
{
	note(((struct its *)s)->name, expired ? "expired" : "token");
}

/* Tells something itself, as the row of the certificate does. */
static void certificate(void *s, struct cert *cert, const char *why_not)
{
	struct its *its = s;

	assert_null(cert);
	note(its->name, why_not);
	if (!strcmp(its->name, "first"))
		pod_tell_trust(its->context);
}

static bool call(void *s, struct rpc_stream *st, const char *method)
{
	(void)st;
	note(((struct its *)s)->name, method);
	return world.takes;
}

static bool call_first(void *s, struct rpc_stream *st, const char *method)
{
	(void)call(s, st, method);
	return false;
}

static void uses(void *s, int64_t in_use[LIMIT_END])
{
	(void)s;
	in_use[LIMIT_STREAMS] = 7;
}

static void dump(void *s, json_t *o)
{
	json_object_set_new(o, ((struct its *)s)->name, json_true());
}

static void show(void *s, json_t *o, const char *name)
{
	json_object_set_new(o, ((struct its *)s)->name, json_string(name));
}

static void measure(void *s, const char *labels)
{
	note(((struct its *)s)->name, labels);
}

static unsigned count(void *s)
{
	return strcmp(((struct its *)s)->name, "third") == 0 ? 3 : 0;
}

static bool troubles(void *s, struct err *why)
{
	if (world.troubled)
		err_set(why, ERR_UNAVAILABLE, "%s's disk", ((struct its *)s)->name);
	return world.troubled;
}

#define OFTEN                                                                                      \
	.size = sizeof(struct its), .stop = stop, .directory = directory,                          \
	.redirected = redirected, .netns = netns, .addresses = addresses,                          \
	.token_given = token_given, .token = token, .trust = trust, .certificate = certificate,    \
	.dump = dump, .measure = measure, .lost = lost

static const struct pod_service first = {.name = "first",
    .start = start_first,
    OFTEN,
    .call = call_first,
    .page = "one",
    .show = show,
    .served = served,
    .progress = progress};
/* Says less. */
static const struct pod_service nothing = {.name = "nothing", .size = sizeof(struct its)};
static const struct pod_service second = {.name = "second",
    .start = start_second,
    OFTEN,
    .stop_accepting = stop_accepting,
    .call = call,
    .page = "two",
    .show = show};
static const struct pod_service third = {.name = "third",
    .start = start_third,
    OFTEN,
    .call = call,
    .uses = uses,
    .troubles = troubles,
    .served = served,
    .progress = progress,
    .page = "one",
    .show = show,
    .gauge = "numbers",
    .count = count};

/* In place of rows.c's. */
const struct pod_service *const pod_rows[] = {&first, &nothing, &second, &third, NULL};

/* --- the tests --- */

static struct pod_services *s;

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pod_services_stop(&s);
	metrics_clear();
	return 0;
}

static struct pod_services *start(void)
{
	static const struct redirect_plan *const plan = (const void *)&world;

	s = pod_services_start(&shared, pod_rows, &pod, (struct node *)&world, plan);
	assert_ptr_equal(world.seen_plan, plan);
	return s;
}

/* What happened since the last time. */
static void happened(const char *what)
{
	assert_string_equal(world.text, what);
	world.text[0] = '\0';
}

static void started_downwards_stopped_upwards(void **state)
{
	(void)state;
	assert_non_null(start());
	happened("first start, second start, third start");
	assert_ptr_equal(world.context->plane, &plane);
	assert_null(world.context->plan); /* of start() only */
	assert_false(world.node_freed);
	pod_services_stop(&s);
	assert_null(s);
	happened("third stop, second stop, first stop");
	assert_true(world.node_freed);
}

static void a_start_that_fails_refuses_the_pod(void **state)
{
	(void)state;
	world.failing = "third";
	assert_null(start());
	happened("first start, second start, third start, second stop, first stop");
	assert_string_equal(world.state.msg, "third: no room");
	assert_true(world.node_freed);
	world.failing = "first";
	assert_null(start());
	happened("first start");
	assert_string_equal(world.state.msg, "first: no room");
}

static void everybody_hears_an_event_in_this_order(void **state)
{
	static const char *const ips[] = {"10.0.0.1"};

	(void)state;
	start();
	world.text[0] = '\0';
	pod_tell_directory(world.context);
	happened("first directory, second directory, third directory");
	pod_tell_lost(world.context, 2);
	happened("first lost, second lost, third lost");
	pod_tell_redirected(world.context);
	happened("first redirected, second redirected, third redirected");
	pod_tell_netns(world.context, true);
	happened("first netns, second netns, third netns");
	pod_tell_netns(world.context, false);
	happened("first no netns, second no netns, third no netns");
	pod_tell_addresses(world.context, ips, 1);
	happened("first 10.0.0.1, second 10.0.0.1, third 10.0.0.1");
	pod_services_token_changed(s);
	happened("first token_given, second token_given, third token_given");
	pod_tell_token(world.context, false);
	happened("first token, second token, third token");
	pod_tell_token(world.context, true);
	happened("first expired, second expired, third expired");
	pod_services_trust_changed(s);
	happened("first trust, second trust, third trust");
	pod_services_stop_accepting(s);
	happened("second stop_accepting");
}

static void an_event_inside_another_is_heard_at_once(void **state)
{
	(void)state;
	start();
	world.text[0] = '\0';
	pod_tell_certificate(world.context, NULL, "why");
	happened("first why, first trust, second trust, third trust, second why, third why");
}

static void the_first_that_takes_a_call_has_it(void **state)
{
	(void)state;
	start();
	world.text[0] = '\0';
	assert_false(pod_ask_call(world.context, NULL, "x"));
	happened("first x, second x, third x");
	world.takes = true;
	assert_true(pod_ask_call(world.context, NULL, "x"));
	happened("first x, second x");
}

/* The gravest word counts, of these the first; nothing is said while one is at its beginning. */
static void the_rows_together_say_whether_it_is_ready(void **state)
{
	static const struct {
		enum pod_progress first, third;
		const char *told, *why;
	} cases[] = {
	    {POD_FINE, POD_FINE, "ready, ", ""},
	    {POD_FINE, POD_BEGINS, "", ""},
	    {POD_HELD, POD_BEGINS, "", ""},
	    {POD_BEGINS, POD_DEGRADED, "", ""},
	    {POD_DEGRADED, POD_FINE, "degraded, ", "first's"},
	    {POD_FINE, POD_DEGRADED, "degraded, ", "third's"},
	    {POD_DEGRADED, POD_DEGRADED, "degraded, ", "first's"},
	    {POD_DEGRADED, POD_HELD, "held, ", "third's"},
	    {POD_HELD, POD_DEGRADED, "held, ", "first's"},
	    {POD_HELD, POD_HELD, "held, ", "first's"},
	};

	(void)state;
	start();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		world.progress[0] = cases[i].first;
		world.progress[1] = cases[i].third;
		world.told[0] = world.state.msg[0] = '\0';
		pod_tell_progress(world.context);
		assert_string_equal(world.told, cases[i].told);
		assert_string_equal(world.state.msg, cases[i].why);
	}
}

/* The gravest word counts, of these the first; what says nothing gives what it should. */
static void the_rows_together_say_whether_it_is_served(void **state)
{
	static const struct {
		enum served first, third, all;
		const char *why;
	} cases[] = {
	    {SERVED_YES, SERVED_YES, SERVED_YES, ""},
	    {SERVED_YES, SERVED_UNASKED, SERVED_UNASKED, ""},
	    {SERVED_UNASKED, SERVED_HELD, SERVED_HELD, "third gives nothing"},
	    {SERVED_HELD, SERVED_HELD, SERVED_HELD, "first gives nothing"},
	    {SERVED_HELD, SERVED_NO, SERVED_NO, "third gives nothing"},
	    {SERVED_NO, SERVED_UNASKED, SERVED_NO, "first gives nothing"},
	};

	(void)state;
	pod.services = start();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct err why = {0};

		world.served[0] = cases[i].first;
		world.served[1] = cases[i].third;
		assert_int_equal(pod_services_served(&pod, &why), cases[i].all);
		assert_string_equal(why.msg, cases[i].why);
	}
	struct err trouble = {0};
	assert_false(pod_services_trouble(pod.services, &trouble));
	world.troubled = true;
	assert_true(pod_services_trouble(pod.services, &trouble));
	assert_string_equal(trouble.msg, "third's disk");
	pod.services = NULL;
	err_set(&pod.state, ERR_INVALID, "refused");
	struct err why = {0};
	assert_int_equal(pod_services_served(&pod, &why), SERVED_NO);
	assert_string_equal(why.msg, "refused");
	pod.state = (struct err){0};
}

static void problems_are_shown_and_measured(void **state)
{
	json_t *o = json_object();
	json_t *problems;

	(void)state;
	start();
	world.progress[0] = POD_HELD;
	world.progress[1] = POD_DEGRADED;
	pod_services_dump(s, o);
	problems = json_object_get(o, "problems");
	assert_string_equal(json_string_value(json_object_get(problems, "first")), "first's");
	assert_string_equal(json_string_value(json_object_get(problems, "third")), "third's");
	json_decref(o);
	pod_services_measure(s, "pod=\"a\"");
	assert_metric("agentd_pod_problem{pod=\"a\",service=\"first\"} 1");
	world.progress[0] = POD_FINE;
	pod_services_measure(s, "pod=\"a\"");
	assert_metric("agentd_pod_problem{pod=\"a\",service=\"first\"} 0");
	assert_metric("agentd_pod_problem{pod=\"a\",service=\"third\"} 1");
	world.served[0] = SERVED_HELD;
	pod_services_measure(s, "pod=\"a\"");
	assert_metric("agentd_pod_problem{pod=\"a\",service=\"first\"} 1");
	world.served[0] = SERVED_UNASKED;
	pod_services_measure(s, "pod=\"a\"");
	assert_metric("agentd_pod_problem{pod=\"a\",service=\"first\"} 0");
	assert_false(metrics_say("service=\"second\"")); /* it never had one */
	metrics_clear();
}

static void looked_at(void **state)
{
	int64_t in_use[LIMIT_END] = {0};
	json_t *o = json_object();

	(void)state;
	start();
	world.text[0] = '\0';
	pod_ask_uses(world.context, in_use);
	assert_int_equal(in_use[LIMIT_STREAMS], 7);
	pod_services_dump(s, o);
	assert_int_equal(json_object_size(o), 4);
	assert_int_equal(json_object_size(json_object_get(o, "problems")), 0);
	json_object_clear(o);
	pod_services_show(s, "one", o, "asked");
	assert_int_equal(json_object_size(o), 2);
	assert_string_equal(json_string_value(json_object_get(o, "third")), "asked");
	json_decref(o);
	pod_services_measure(s, "labels");
	happened("first labels, second labels, third labels");
	assert_int_equal(pod_services_count(s, 3), 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(started_downwards_stopped_upwards),
	    TEST(a_start_that_fails_refuses_the_pod),
	    TEST(everybody_hears_an_event_in_this_order),
	    TEST(an_event_inside_another_is_heard_at_once),
	    TEST(the_first_that_takes_a_call_has_it),
	    TEST(the_rows_together_say_whether_it_is_ready),
	    TEST(the_rows_together_say_whether_it_is_served),
	    TEST(problems_are_shown_and_measured),
	    TEST(looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
