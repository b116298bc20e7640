/* workload_test.c - where the pods of each kind are, and who owns them.
 *
 * LINK: tests/unit/inject/work_rig.c tests/unit/json_rig.c
 */
#include "common/mem.h"
#include "tests/unit/json_rig.h"
#include "work_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* JSON with ' for "; done. */
static json_t *done(const char *text)
{
	json_t *o = rig_json(text), *out = inject_object(&work, o, &e);

	if (!out)
		fail_msg("%s", e.msg);
	json_decref(o);
	return out;
}

#define SPEC "'spec':{'containers':[{'name':'a'}]}"

/* Of the first pod that was written; the caller frees it. */
static char *owner_of(const char *text)
{
	json_t *o = done(text);
	auto_free char *all = json_dumps(o, 0);
	const char *at = strstr(all, "\"ISTIO_META_OWNER\": \"kubernetes://apis/");

	json_decref(o);
	if (!at)
		return mem_strdup("none");
	at += strlen("\"ISTIO_META_OWNER\": \"kubernetes://apis/");
	return mem_printf("%.*s", (int)strcspn(at, "\""), at);
}

/* Of {text, owner}. */
static void each_has_owner(const char *const rows[][2], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		auto_free char *owner = owner_of(rows[i][0]);

		assert_string_equal(owner, rows[i][1]);
	}
}

#define WORKLOAD(api, kind, spec)                                                                  \
	"{'apiVersion':'" api "','kind':'" kind                                                    \
	"','metadata':{'name':'w','namespace':'n'},'spec':" spec "}"
#define OWNED(api, kind, name, labels)                                                             \
	"{'apiVersion':'v1','kind':'Pod','metadata':{'generateName':'w-','labels':{" labels        \
	"},'ownerReferences':[{'kind':'No','name':'no'},{'controller':true,'apiVersion':'" api     \
	"','kind':'" kind "','name':'" name "'}]}," SPEC "}"

static void each_kind_has_its_place(void **state)
{
	static const char *const rows[][2] = {
	    {"{'apiVersion':'v1','kind':'Pod','metadata':{'name':'w','namespace':'n'}," SPEC "}",
		"v1/namespaces/n/pods/w"},
	    {WORKLOAD("apps/v1", "Deployment", "{'template':{" SPEC "}}"),
		"apps/v1/namespaces/n/deployments/w"},
	    {WORKLOAD("apps/v1beta2", "DaemonSet", "{'template':{" SPEC "}}"),
		"apps/v1beta2/namespaces/n/daemonsets/w"},
	    {WORKLOAD("apps/v1", "StatefulSet", "{'template':{" SPEC "}}"),
		"apps/v1/namespaces/n/statefulsets/w"},
	    {WORKLOAD("apps/v1", "ReplicaSet", "{'template':{" SPEC "}}"),
		"apps/v1/namespaces/n/replicasets/w"},
	    {WORKLOAD("v1", "ReplicationController", "{'template':{" SPEC "}}"),
		"v1/namespaces/n/replicationcontrollers/w"},
	    {WORKLOAD("batch/v1", "Job", "{'template':{" SPEC "}}"),
		"batch/v1/namespaces/n/jobs/w"},
	    {WORKLOAD("batch/v1", "CronJob", "{'jobTemplate':{'spec':{'template':{" SPEC "}}}}"),
		"batch/v1/namespaces/n/cronjobs/w"},
	    {WORKLOAD("apps.openshift.io/v1", "DeploymentConfig", "{'template':{" SPEC "}}"),
		"apps.openshift.io/v1/namespaces/n/deploymentconfigs/w"},
	    {WORKLOAD("example/v1", "Deployment", "{'template':{" SPEC "}}"), "none"},
	    {WORKLOAD("v1", "Deployment", "{'template':{" SPEC "}}"), "none"},
	    {WORKLOAD("v1", "Secret", "{'template':{" SPEC "}}"), "none"},
	};

	(void)state;
	each_has_owner(rows, sizeof(rows) / sizeof(*rows));
}

static void a_pods_owner_is_climbed_to(void **state)
{
	static const char *const rows[][2] = {
	    {OWNED("apps/v1", "ReplicaSet", "w-abc", "'pod-template-hash':'abc'"),
		"apps/v1/namespaces/default/deployments/w"},
	    {OWNED("apps/v1", "ReplicaSet", "w-abc", "'pod-template-hash':'xyz'"),
		"apps/v1/namespaces/default/replicasets/w-abc"},
	    {OWNED("apps/v1", "ReplicaSet", "abc", "'pod-template-hash':'abc'"),
		"apps/v1/namespaces/default/replicasets/abc"},
	    {OWNED("argoproj.io/v1", "ReplicaSet", "w-abc", "'rollouts-pod-template-hash':'abc'"),
		"v1alpha1/namespaces/default/rollouts/w"},
	    {OWNED("v1", "ReplicationController", "w-1", "'deploymentconfig':'dc'"),
		"v1/namespaces/default/deploymentconfigs/dc"},
	    {OWNED("v1", "ReplicationController", "w-1", ""),
		"v1/namespaces/default/replicationcontrollers/w-1"},
	    {OWNED("batch/v1beta1", "Job", "w-28412345", ""),
		"batch/v1/namespaces/default/cronjobs/w"},
	    {OWNED("batch/v1", "Job", "w-1234567", ""),
		"batch/v1/namespaces/default/jobs/w-1234567"},
	    {OWNED("batch/v1", "Job", "-28412345", ""),
		"batch/v1/namespaces/default/jobs/-28412345"},
	    {OWNED("apps/v1", "StatefulSet", "db", ""),
		"apps/v1/namespaces/default/statefulsets/db"},
	};

	(void)state;
	each_has_owner(rows, sizeof(rows) / sizeof(*rows));
}

static void of_a_cronjob_the_pod_template_counts(void **state)
{
	json_t *o = done(WORKLOAD("batch/v1", "CronJob",
	    "{'jobTemplate':{'metadata':{'labels':{'sidecar.istio.io/inject':'false'}},'spec':"
	    "{'template':{'metadata':{'labels':{'app':'x'}}," SPEC "}}}}"));
	auto_free char *labels = json_dumps(
	    json_object_get(
		json_object_get(
		    json_object_get(
			json_object_get(
			    json_object_get(
				json_object_get(json_object_get(o, "spec"), "jobTemplate"), "spec"),
			    "template"),
			"metadata"),
		    "labels"),
		"security.istio.io/tlsMode"),
	    JSON_ENCODE_ANY);

	(void)state;
	assert_string_equal(labels, "\"istio\"");
	json_decref(o);
}

static void lists_hold_any_kind(void **state)
{
	json_t *o =
	    done("{'apiVersion':'v1','kind':'List','items':[1,{'kind':'X'},"
		 "{'apiVersion':'v1','kind':'List','items':[{'apiVersion':'v1','kind':'Pod',"
		 "'metadata':{'name':'a'}," SPEC "}]},"
		 "{'apiVersion':'v1','kind':'Pod','metadata':{'name':'b'}," SPEC "}]}");

	(void)state;
	assert_int_equal(json_array_size(work.said), 2);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "items"), 0)), 1);
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(each_kind_has_its_place),
	    TEST(a_pods_owner_is_climbed_to),
	    TEST(of_a_cronjob_the_pod_template_counts),
	    TEST(lists_hold_any_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
