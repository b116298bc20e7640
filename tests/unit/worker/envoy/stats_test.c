/* stats_test.c - what a pod asks of Envoy's statistics, and what is refused of it.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "tests/unit/mesh/node_rig.h"
#include "worker/envoy/stats.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ANNOTATION "sidecar.istio.io/"
enum { TAGS_ALWAYS = 16, PATTERNS_ALWAYS = 13, MONGO = 8 };

static json_t *added(const struct fixture *f)
{
	json_t *b = json_object();

	assert_non_null(f->node);
	stats_add(f->node, b);
	return b;
}

static json_t *patterns(json_t *b)
{
	return at(at(at(at(b, "stats_config"), "stats_matcher"), "inclusion_list"), "patterns");
}

static void pattern_is(json_t *b, size_t i, const char *kind, const char *text)
{
	assert_string_equal(
	    json_string_value(at(json_array_get(patterns(b), PATTERNS_ALWAYS + i), kind)), text);
}

static void annotated(struct fixture *f, const char *name, const char *value)
{
	auto_free char *key = mem_printf(ANNOTATION "%s", name);

	put(f->pod.annotations, key, value);
}

static void test_nothing_asked(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	b = added(f);
	assert_int_equal(json_array_size(at(at(b, "stats_config"), "stats_tags")), TAGS_ALWAYS);
	assert_int_equal(json_array_size(patterns(b)), PATTERNS_ALWAYS);
	assert_int_equal(json_object_size(b), 1);
	assert_null(at(at(b, "stats_config"), "histogram_bucket_settings"));
	json_decref(b);
}

static void test_an_annotation_wins(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	accepted(f, "PROXY_CONFIG",
	    "{proxyStatsMatcher: {inclusionPrefixes: [a, b], inclusionSuffixes: [z]}}");
	b = added(f);
	assert_int_equal(json_array_size(patterns(b)), PATTERNS_ALWAYS + 3);
	pattern_is(b, 0, "prefix", "a");
	pattern_is(b, 2, "suffix", "z");
	json_decref(b);
	annotated(f, "statsInclusionPrefixes", "cluster.outbound, http.");
	accepted(f, "PROXY_CONFIG",
	    "{proxyStatsMatcher: {inclusionPrefixes: [a], inclusionRegexps: ['x.*']}}");
	b = added(f);
	assert_int_equal(json_array_size(patterns(b)), PATTERNS_ALWAYS + 3);
	pattern_is(b, 0, "prefix", "cluster.outbound");
	pattern_is(b, 1, "prefix", "http.");
	text_at(patterns(b), "15.safe_regex.regex", "x.*");
	json_decref(b);
	annotated(f, "statsInclusionPrefixes", ""); /* as if it were not there */
	accepted(f, "PROXY_CONFIG", "{proxyStatsMatcher: {inclusionPrefixes: [a]}}");
	b = added(f);
	pattern_is(b, 0, "prefix", "a");
	json_decref(b);
}

static void test_each_address(void **state)
{
	static const char *const ips[] = {"10.0.0.7", "fd00::7"};
	struct fixture *f = *state;
	json_t *b;

	annotated(f, "statsInclusionSuffixes", "{pod_ip}_8080");
	annotated(f, "statsInclusionRegexps", "http\\.{pod_ip}_.*{pod_ip}");
	assert_non_null(make(f));
	node_set_addresses(f->node, ips, 2);
	b = added(f);
	assert_int_equal(json_array_size(patterns(b)), PATTERNS_ALWAYS + 4);
	text_at(patterns(b), "15.safe_regex.regex", "http\\.10.0.0.7_.*10.0.0.7");
	pattern_is(b, 0, "suffix", "10.0.0.7_8080");
	pattern_is(b, 1, "suffix", "fd00::7_8080");
	json_decref(b);
}

/* The order of tags matters: those of the pod come behind Istio's mongo_prefix; each once. */
static void test_extra_tags(void **state)
{
	struct fixture *f = *state;
	json_t *b, *tags;

	annotated(f, "extraStatTags", "two,three");
	accepted(f, "PROXY_CONFIG", "extraStatTags: [one, two]");
	b = added(f);
	tags = at(at(b, "stats_config"), "stats_tags");
	assert_int_equal(json_array_size(tags), TAGS_ALWAYS + 3);
	assert_string_equal(
	    json_string_value(at(json_array_get(tags, MONGO + 1), "tag_name")), "one");
	assert_string_equal(json_string_value(at(json_array_get(tags, MONGO + 2), "regex")),
	    "(two=\\.=(.*?);\\.;)");
	json_decref(b);
}

static void test_buckets_and_intervals(void **state)
{
	struct fixture *f = *state;
	json_t *b, *setting;

	annotated(
	    f, "statsHistogramBuckets", "{\"ist\": [7], \"istio\": [1], \"is\": [1, 2.5, 10]}");
	annotated(f, "statsFlushInterval", "1500ms");
	annotated(f, "statsEvictionInterval", "1m");
	assert_non_null(make(f));
	b = added(f);
	setting = json_array_get(at(at(b, "stats_config"), "histogram_bucket_settings"), 0);
	assert_string_equal(json_string_value(at(at(setting, "match"), "prefix")), "is");
	assert_int_equal(json_array_size(at(setting, "buckets")), 3);
	assert_string_equal(json_string_value(at(b, "stats_flush_interval")), "1.500s");
	assert_string_equal(json_string_value(at(b, "stats_eviction_interval")), "60.000s");
	json_decref(b);
}

static void test_what_is_refused(void **state)
{
	static const struct {
		const char *annotation, *value, *allowed;
	} bad[] = {
	    {"statsInclusionPrefixes", "a\x01", "up to 64 prefixes"},
	    {"statsInclusionPrefixes", "a\"b", "up to 64 prefixes"},
	    {"statsInclusionRegexps", "(", "as RE2 takes them"},
	    {"statsInclusionRegexps", "a\"\x01", "as RE2 takes them"},
	    {"extraStatTags", "ta\"g", "A-Z a-z"},
	    {"extraStatTags", "tag(.*)", "A-Z a-z"},
	    {"statsHistogramBuckets", "{\"a\": [5, 1]}", "rising numbers"},
	    {"statsHistogramBuckets", "{\"a\": [1, 1]}", "rising numbers"},
	    {"statsHistogramBuckets", "{\"a\": [0]}", "rising numbers"},
	    {"statsHistogramBuckets", "{\"a\": []}", "rising numbers"},
	    {"statsHistogramBuckets", "{\"a\": \"1\"}", "rising numbers"},
	    {"statsHistogramBuckets", "[1]", "rising numbers"},
	    {"statsHistogramBuckets", "{", "rising numbers"},
	    {"statsFlushInterval", "0s", "1ms to 299s"},
	    {"statsFlushInterval", "300s", "1ms to 299s"},
	    {"statsFlushInterval", "often", "1ms to 299s"},
	    {"statsEvictionInterval", "7s", "a multiple of"},
	    {"statsEvictionInterval", "25h", "a multiple of"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		json_object_clear(f->pod.annotations);
		annotated(f, bad[i].annotation, bad[i].value);
		if (make(f))
			fail_msg("%s %s was taken", bad[i].annotation, bad[i].value);
		if (!strstr(f->e.msg, bad[i].annotation) || !strstr(f->e.msg, bad[i].allowed))
			fail_msg("%s: %s", bad[i].value, f->e.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(nothing_asked),
	    TEST(an_annotation_wins),
	    TEST(each_address),
	    TEST(extra_tags),
	    TEST(buckets_and_intervals),
	    TEST(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
