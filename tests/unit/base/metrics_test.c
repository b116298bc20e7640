/* metrics_test.c - the page is read back by a strict little parser of Prometheus' text format. */
#include "base/metrics.h"

#include <event2/buffer.h>
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *page;

static const char *render(void)
{
	struct evbuffer *out = evbuffer_new();

	metrics_render(out);
	free(page);
	size_t n = evbuffer_get_length(out);
	page = calloc(1, n + 1);
	evbuffer_remove(out, page, n);
	evbuffer_free(out);
	return page;
}

static int clear(void **state)
{
	(void)state;
	metrics_clear();
	free(page);
	page = NULL;
	return 0;
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	bool yes = regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	return yes;
}

/* Every line is HELP, TYPE or a sample; HELP and TYPE come once, in this order, before the samples
 * of their metric; no sample comes twice. */
static void check_page(const char *text)
{
	static const char sample[] =
	    "^[a-zA-Z_:][a-zA-Z0-9_:]*(\\{[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\]|\\\\[\"\\\\n])*\""
	    "(,[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\]|\\\\[\"\\\\n])*\")*\\})? "
	    "([+-]Inf|NaN|-?[0-9]+(\\.[0-9]+)?(e[+-][0-9]+)?)$";
	char *copy = strdup(text);
	char metric[128] = "";
	char *rest = copy;
	char *line;

	assert_true(!*text || text[strlen(text) - 1] == '\n');
	while ((line = strsep(&rest, "\n")) && (*line || rest)) {
		if (strncmp(line, "# HELP ", 7) == 0) {
			snprintf(
			    metric, sizeof(metric), "%.*s", (int)strcspn(line + 7, " "), line + 7);
			char *type = strsep(&rest, "\n");
			char wanted[160];
			snprintf(wanted, sizeof(wanted), "^# TYPE %s (counter|gauge|histogram)$",
			    metric);
			assert_true(matches(type, wanted));
			continue;
		}
		if (!matches(line, sample))
			fail_msg("not a sample: %s", line);
		assert_int_equal(strncmp(line, metric, strlen(metric)), 0);
		assert_non_null(strchr("{ _", line[strlen(metric)]));
		size_t key = (size_t)(strrchr(line, ' ') - line) + 1;
		const char *first = strstr(text, line);
		for (const char *p = first + 1; (p = strstr(p, "\n")) && *++p;)
			if (p != first)
				assert_true(p[0] == '#' || strncmp(p, line, key) != 0);
	}
	free(copy);
}

static void test_page(void **state)
{
	struct metric *csr = metric_counter("agentd_csr_requests_total", "Certificates asked for.");
	struct metric *pods = metric_gauge("agentd_pods", "Pods known.");
	char labels[64];

	(void)state;
	metric_gauge("agentd_unused", "Has no sample, so is not shown.");
	metric_set(pods, "", 3);
	metric_add(pods, "", -1);
	metric_add(csr, metric_labels(labels, sizeof(labels), "result", "ok", NULL), 1);
	metric_add(csr, metric_labels(labels, sizeof(labels), "result", "failed", NULL), 2);
	metric_add(csr, metric_labels(labels, sizeof(labels), "result", "ok", NULL), 40);
	assert_string_equal(render(), "# HELP agentd_csr_requests_total Certificates asked for.\n"
				      "# TYPE agentd_csr_requests_total counter\n"
				      "agentd_csr_requests_total{result=\"failed\"} 2\n"
				      "agentd_csr_requests_total{result=\"ok\"} 41\n"
				      "# HELP agentd_pods Pods known.\n"
				      "# TYPE agentd_pods gauge\n"
				      "agentd_pods 2\n");
	check_page(page);
}

/* Buckets are cumulated; a duration on a bound belongs to it. */
static void test_histogram(void **state)
{
	struct metric *h = metric_histogram("agentd_x_seconds", "X.");

	(void)state;
	metric_add(h, "", 0); /* there before the first event */
	assert_non_null(strstr(render(), "agentd_x_seconds_count 0\n"));
	metric_observe(h, "", 0.005);
	metric_observe(h, "", 0.2);
	metric_observe(h, "", 31);
	metric_observe(h, "a=\"b\"", 1);
	check_page(render());
	assert_memory_equal(page,
	    "# HELP agentd_x_seconds X.\n"
	    "# TYPE agentd_x_seconds histogram\n"
	    "agentd_x_seconds_bucket{le=\"0.005\"} 1\n"
	    "agentd_x_seconds_bucket{le=\"0.025\"} 1\n"
	    "agentd_x_seconds_bucket{le=\"0.1\"} 1\n"
	    "agentd_x_seconds_bucket{le=\"0.25\"} 2\n",
	    60);
	assert_non_null(strstr(page, "agentd_x_seconds_bucket{le=\"0.25\"} 2\n"));
	assert_non_null(strstr(page, "agentd_x_seconds_bucket{le=\"30\"} 2\n"
				     "agentd_x_seconds_bucket{le=\"+Inf\"} 3\n"
				     "agentd_x_seconds_sum 31.205\n"
				     "agentd_x_seconds_count 3\n"
				     "agentd_x_seconds_bucket{a=\"b\",le=\"0.005\"} 0\n"));
	assert_non_null(strstr(page, "agentd_x_seconds_sum{a=\"b\"} 1\n"));
	metrics_drop("a=\"b\"");
	assert_null(strstr(render(), "a=\"b\""));
}

/* Two objects of a module name the same metric: HELP comes once. */
static void test_same_name_is_same_metric(void **state)
{
	(void)state;
	struct metric *m = metric_counter("agentd_x_total", "X.");
	assert_ptr_equal(metric_counter("agentd_x_total", "X."), m);
	assert_ptr_not_equal(metric_counter("agentd_x", "X."), m);
}

static const char *value_of(double v)
{
	struct metric *m = metric_gauge("v", "V.");

	metric_set(m, "", v);
	check_page(render());
	return strrchr(page, ' ') + 1;
}

static void test_values(void **state)
{
	(void)state;
	assert_string_equal(value_of(0), "0\n");
	assert_string_equal(value_of(-3), "-3\n");
	assert_string_equal(value_of(1e15), "1000000000000000\n"); /* no exponent */
	assert_string_equal(value_of(9007199254740992.0), "9007199254740992\n");
	assert_string_equal(value_of(0.1), "0.1\n");
	assert_string_equal(value_of(1700000000.123), "1700000000.123\n");
	assert_string_equal(value_of(NAN), "NaN\n");
	assert_string_equal(value_of(INFINITY), "+Inf\n");
	assert_string_equal(value_of(-INFINITY), "-Inf\n");
	assert_true(strtod(value_of(1.0 / 3), NULL) == 1.0 / 3);
	assert_true(strtod(value_of(1e300), NULL) == 1e300);
}

static void test_labels_are_escaped(void **state)
{
	char out[128];

	(void)state;
	metric_labels(out, sizeof(out), "a", "x\"y\\z\n", "b", "", NULL);
	assert_string_equal(out, "a=\"x\\\"y\\\\z\\n\",b=\"\"");
	/* Names only: whatever is not printable ASCII would endanger the page of the whole node. */
	metric_labels(out, sizeof(out), "a", "\xff\r\x01\xc3\xa9", NULL);
	assert_string_equal(out, "a=\"?????\"");
	assert_string_equal(metric_labels(out, sizeof(out), NULL), "");
	metric_set(
	    metric_gauge("g", "G."), metric_labels(out, sizeof(out), "a", "\"},\n{", NULL), 1);
	check_page(render());
}

/* Every size: nothing is written beyond it, and a pair is there as a whole or not at all. */
static void test_labels_never_overflow(void **state)
{
	static const char whole[] = "pod=\"a\\\"b\",ns=\"demo\"";
	static const char first[] = "pod=\"a\\\"b\"";

	(void)state;
	for (unsigned size = 0; size <= sizeof(whole) + 2; size++) {
		char *out = malloc(size ? size : 1); /* ASan watches its end */
		out[0] = 'k';
		assert_ptr_equal(metric_labels(out, size, "pod", "a\"b", "ns", "demo", NULL), out);
		if (size == 0)
			assert_int_equal(out[0], 'k');
		else
			assert_string_equal(out, size >= sizeof(whole)   ? whole
						 : size >= sizeof(first) ? first
									 : "");
		free(out);
	}
}

static void test_drop(void **state)
{
	struct metric *m = metric_gauge("g", "G.");

	(void)state;
	metric_set(m, "pod=\"web\",type=\"a\"", 1);
	metric_set(m, "pod=\"web\",type=\"b\"", 2);
	metric_set(m, "pod=\"web-2\",type=\"a\"", 3);
	metric_set(m, "", 4);
	metrics_drop("pod=\"web\"");
	assert_string_equal(
	    render(), "# HELP g G.\n# TYPE g gauge\ng 4\ng{pod=\"web-2\",type=\"a\"} 3\n");
	metric_add(m, "pod=\"web\"", 1); /* comes back from zero */
	render();
	assert_non_null(strstr(page, "g{pod=\"web\"} 1\n"));
}

static void test_order_is_stable(void **state)
{
	struct metric *m = metric_gauge("g", "G.");
	char label[32];
	unsigned seed = 7;

	(void)state;
	for (int i = 0; i < 300; i++) {
		snprintf(label, sizeof(label), "n=\"%03d\"", rand_r(&seed) % 500);
		metric_set(m, label, 1);
	}
	char *before = strdup(render());
	check_page(before);
	metrics_drop("n=\"1");
	metric_set(m, "n=\"000\"", 1);
	const char *last = "";
	for (char *p = strchr(render(), '{'); p; p = strchr(p + 1, '{')) {
		assert_true(strncmp(last, p, 8) < 0);
		last = p;
	}
	free(before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(test_page, clear),
	    cmocka_unit_test_teardown(test_histogram, clear),
	    cmocka_unit_test_teardown(test_same_name_is_same_metric, clear),
	    cmocka_unit_test_teardown(test_values, clear),
	    cmocka_unit_test_teardown(test_labels_are_escaped, clear),
	    cmocka_unit_test_teardown(test_labels_never_overflow, clear),
	    cmocka_unit_test_teardown(test_drop, clear),
	    cmocka_unit_test_teardown(test_order_is_stable, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
