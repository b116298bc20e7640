/* review_test.c - what an API server is answered, and what is no question of one. */
#include "common/err.h"
#include "common/mem.h"
#include "inject/bounds.h"
#include "inject/config.h"
#include "injector/review.h"
#include <jansson.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct inject_config *config;
static struct review r;
static json_t *response; /* of the last answer */

static int setup(void **state)
{
	json_t *all =
	    json_loads("{\"values\":{\"global\":{\"hub\":\"h\",\"tag\":\"1.2.3\"}}}", 0, NULL);
	struct err e;

	(void)state;
	config = inject_config_of(all, &e);
	json_decref(all);
	return config ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(take(response));
	free(r.text);
	r.text = NULL;
	inject_config_free(&config);
	return 0;
}

/* JSON with ' for ". */
static void ask(const char *text)
{
	auto_free char *body = mem_strdup(text);
	json_t *answer;

	for (char *at = body; *at; at++)
		if (*at == '\'')
			*at = '"';
	free(r.text);
	json_decref(take(response));
	review_answer(&r, config, body, strlen(body));
	if (r.status != 200)
		return;
	answer = json_loads(r.text, JSON_ALLOW_NUL, NULL);
	assert_string_equal(
	    json_string_value(json_object_get(answer, "apiVersion")), "admission.k8s.io/v1");
	assert_string_equal(json_string_value(json_object_get(answer, "kind")), "AdmissionReview");
	response = json_incref(json_object_get(answer, "response"));
	json_decref(answer);
}

#define REVIEW(request)                                                                            \
	"{'apiVersion':'admission.k8s.io/v1','kind':'AdmissionReview','request':{" request "}}"
#define POD_KIND "'kind':{'group':'','version':'v1','kind':'Pod'}"
#define ABOUT(pod)                                                                                 \
	REVIEW("'uid':'u',"                                                                        \
	       "'operation':'CREATE','namespace':'demo'," POD_KIND ",'object':" pod)
#define POD(metadata, spec)                                                                        \
	"{'apiVersion':'v1','kind':'Pod','metadata':{" metadata                                    \
	"},'spec':{'containers':[{'name':'a'}]" spec "}}"

static const char *message(void)
{
	return json_string_value(json_object_get(json_object_get(response, "status"), "message"));
}

static void assert_refused(const char *text)
{
	assert_int_equal(r.status, 200);
	assert_int_equal(r.result, REVIEW_REFUSED);
	assert_true(json_is_false(json_object_get(response, "allowed")));
	assert_null(json_object_get(response, "patch"));
	assert_string_equal(message(), text);
	assert_string_equal(r.why, text);
}

static void assert_skipped(const char *why)
{
	assert_int_equal(r.status, 200);
	assert_int_equal(r.result, REVIEW_SKIPPED);
	assert_true(json_is_true(json_object_get(response, "allowed")));
	assert_null(json_object_get(response, "patch"));
	assert_null(json_object_get(response, "patchType"));
	assert_string_equal(r.why, why);
}

static void assert_malformed(int status, const char *why)
{
	assert_int_equal(r.status, status);
	assert_int_equal(r.result, REVIEW_MALFORMED);
	if (!strstr(r.text, why))
		fail_msg("%s", r.text);
	for (const char *at = r.text; *at; at++)
		assert_true(*at >= ' ' && *at <= '~');
}

static json_t *patch(void)
{
	const char *base64 = json_string_value(json_object_get(response, "patch"));
	auto_free char *text = mem_zalloc(strlen(base64) + 1);
	json_t *v;

	assert_string_equal(json_string_value(json_object_get(response, "patchType")), "JSONPatch");
	EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)base64, (int)strlen(base64));
	v = json_loads(text, 0, NULL);
	assert_non_null(v);
	return v;
}

static void a_pod_gets_a_patch(void **state)
{
	json_t *p, *operation;
	size_t i;

	(void)state;
	ask(ABOUT(POD("'generateName':'web-','labels':{'app':'web'}", "")));
	assert_int_equal(r.result, REVIEW_INJECTED);
	assert_string_equal(r.pod, "demo/web-");
	assert_string_equal(json_string_value(json_object_get(response, "uid")), "u");
	assert_true(json_is_true(json_object_get(response, "allowed")));
	p = patch();
	json_array_foreach (p, i, operation) {
		const char *path = json_string_value(json_object_get(operation, "path"));

		assert_string_equal(json_string_value(json_object_get(operation, "op")), "add");
		assert_null(strstr(path, "/spec/containers"));
	}
	assert_true(json_array_size(p) >= 4 && r.patch_size && r.patch_size < 4096);
	json_decref(p);
}

/* The namespace is the request's: a pod often has none itself. */
static void its_namespace_is_the_requests(void **state)
{
	json_t *p;
	auto_free char *text = NULL;

	(void)state;
	ask(ABOUT(POD("'name':'w'", "")));
	p = patch();
	text = json_dumps(p, 0);
	assert_non_null(strstr(text, "kubernetes://apis/v1/namespaces/demo/pods/w"));
	json_decref(p);
	ask(REVIEW("'uid':'u','operation':'CREATE','namespace':'kube-system'," POD_KIND
		   ",'object':" POD("'name':'w'", "")));
	assert_skipped("a namespace of Kubernetes' own");
	ask(REVIEW("'uid':'u','operation':'CREATE'," POD_KIND
		   ",'object':" POD("'name':'w','namespace':'kube-public'", "")));
	assert_skipped("a namespace of Kubernetes' own");
}

static void a_dry_run_is_no_other(void **state)
{
	auto_free char *real = NULL;

	(void)state;
	ask(ABOUT(POD("'name':'w'", "")));
	real = mem_strdup(r.text);
	ask(REVIEW("'uid':'u','operation':'CREATE','namespace':'demo','dryRun':true," POD_KIND
		   ",'object':" POD("'name':'w'", "")));
	assert_string_equal(r.text, real);
}

static void its_owner_is_in_it(void **state)
{
	auto_free char *text = NULL;
	json_t *p;

	(void)state;
	ask(ABOUT(POD("'generateName':'web-5f-','labels':{'pod-template-hash':'5f'},"
		      "'ownerReferences':[{'apiVersion':'apps/v1','kind':'ReplicaSet',"
		      "'name':'web-5f','controller':true}]",
	    "")));
	p = patch();
	text = json_dumps(p, 0);
	assert_non_null(
	    strstr(text, "kubernetes://apis/apps/v1/namespaces/demo/deployments/web\""));
	json_decref(p);
}

static void one_that_is_not_to_be_injected_stays(void **state)
{
	(void)state;
	ask(ABOUT(POD("'labels':{'sidecar.istio.io/inject':'false'}", "")));
	assert_skipped("label sidecar.istio.io/inject is \"false\"");
	ask(ABOUT(POD("", ",'hostNetwork':true")));
	assert_skipped("hostNetwork");
	/* what would be refused does not matter then */
	ask(ABOUT(
	    POD("'labels':{'sidecar.istio.io/inject':'false'},'annotations':{'a':'\\u0000'}", "")));
	assert_skipped("label sidecar.istio.io/inject is \"false\"");
}

static void a_refusal_has_words(void **state)
{
	(void)state;
	ask(ABOUT(POD("", ",'volumes':[{'name':'agentd'}]")));
	assert_refused("the pod has a volume \"agentd\" already: rename it");
	ask(ABOUT("1"));
	assert_refused("request.object: must be a map");
	ask(ABOUT("{'metadata':[],'spec':{}}"));
	assert_refused("metadata: must be a map");
	ask(ABOUT(POD("'annotations':{'sidecar.istio.io/status':'{}'}", "")));
	assert_int_equal(r.result, REVIEW_REFUSED);
	assert_non_null(strstr(message(), "another injector"));
}

static void a_nul_is_refused_by_name(void **state)
{
	(void)state;
	ask(ABOUT(POD("", ",'nodeName':'a\\u0000b'")));
	assert_refused("a text of the pod holds a NUL: nodeName");
	ask(ABOUT("{'metadata':{'name':'\\u0000'},'spec':{'containers':[{'name':'a','env':[{"
		  "'name':'x','value':'\\u0000'}]}]}}"));
	assert_refused("a text of the pod holds a NUL: name");
}

static void annotations_are_bound(void **state)
{
	auto_free char *long_text = mem_zalloc(REVIEW_ANNOTATIONS_MAX + 1), *body = NULL;

	(void)state;
	memset(long_text, '[', REVIEW_ANNOTATIONS_MAX);
	body = mem_printf(ABOUT(POD("'annotations':{'a':'%s'}", "")), long_text);
	ask(body);
	assert_refused("metadata.annotations: more than 256 KiB");
}

static void other_questions_are_allowed_and_warned_of(void **state)
{
	static const char *const rows[] = {
	    REVIEW("'uid':'u','operation':'UPDATE'," POD_KIND ",'object':" POD("", "")),
	    REVIEW("'uid':'u','operation':'CREATE','subResource':'binding'," POD_KIND
		   ",'object':" POD("", "")),
	    REVIEW("'uid':'u','operation':'CREATE','kind':{'group':'apps','version':'v1','kind':"
		   "'Deployment'},'object':{}"),
	    REVIEW("'uid':'u','operation':'DELETE'," POD_KIND ",'object':null"),
	    REVIEW("'uid':'u'"),
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ask(rows[i]);
		assert_skipped("not the creation of a pod");
		assert_int_equal(json_array_size(json_object_get(response, "warnings")), 1);
	}
}

static void warnings_are_short(void **state)
{
	json_t *list, *v;
	size_t i;

	(void)state;
	ask(ABOUT(
	    POD("'annotations':{'sidecar.istio.io/agentLogLevel':'x',"
		"'proxy.istio.io/config':'proxyMetadata: {"
		"ISTIO_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA: x}'}",
		"")));
	assert_int_equal(r.result, REVIEW_INJECTED);
	list = json_object_get(response, "warnings");
	assert_true(json_array_size(list) >= 1);
	json_array_foreach (list, i, v)
		assert_true(json_string_length(v) <= 120);
}

static void what_is_no_review(void **state)
{
	auto_free char *deep = mem_zalloc(BOUNDS_DEPTH_MAX + 2);

	(void)state;
	memset(deep, '[', BOUNDS_DEPTH_MAX + 1);
	ask(deep);
	assert_malformed(413, "deeper than 64 levels");
	ask("{");
	assert_malformed(400, "the body is no JSON: line 1:");
	ask("[]");
	assert_malformed(400, "not an AdmissionReview");
	ask("{'apiVersion':'admission.k8s.io/"
	    "v1beta1','kind':'AdmissionReview','request':{'uid':'u'}}");
	assert_malformed(400, "not an AdmissionReview of admission.k8s.io/v1");
	ask("{'apiVersion':'admission.k8s.io/v1','kind':'AdmissionReview','request':[]}");
	assert_malformed(400, "request: must be a map");
	ask(REVIEW(""));
	assert_malformed(400, "request.uid: must be text of 1 to 128 bytes");
	ask(REVIEW("'uid':''"));
	assert_malformed(400, "request.uid");
	ask(REVIEW("'uid':7"));
	assert_malformed(400, "request.uid");
	ask(REVIEW("'uid':'u','uid':'v'"));
	assert_malformed(400, "duplicate object key");
	ask(REVIEW("'uid':'\\ud800'"));
	assert_malformed(400, "invalid Unicode");
	ask(REVIEW("'uid':'u','x':18446744073709551616"));
	assert_malformed(400, "too big integer");
	ask(REVIEW("'uid':'u','\\u0000':1"));
	assert_malformed(400, "NUL byte in object key");
	ask("{'uid':'\xff'}");
	assert_malformed(400, "the body is no JSON");
}

static void the_log_gets_printable_names(void **state)
{
	(void)state;
	ask(REVIEW("'uid':'u','operation':'CREATE','namespace':'a\\nb'," POD_KIND
		   ",'object':" POD("'name':'\\u001b[2J'", "")));
	assert_string_equal(r.pod, "a?b/?[2J");
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ROW(a_pod_gets_a_patch),
	    ROW(its_namespace_is_the_requests),
	    ROW(a_dry_run_is_no_other),
	    ROW(its_owner_is_in_it),
	    ROW(one_that_is_not_to_be_injected_stays),
	    ROW(a_refusal_has_words),
	    ROW(a_nul_is_refused_by_name),
	    ROW(annotations_are_bound),
	    ROW(other_questions_are_allowed_and_warned_of),
	    ROW(warnings_are_short),
	    ROW(what_is_no_review),
	    ROW(the_log_gets_printable_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
