/* inject_test.c - one pod: shapes, wishes, refusals by name, warnings, and the way back.
 *
 * That the result is istiod's is tested beside istiod's own injector (tests/helm/test_engine.py).
 * LINK: tests/unit/json_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject/config.h"
#include "inject/inject.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct inject_config *config;
static json_t *warnings;
static struct err e;
static const struct inject_owner owner = {"apps/v1", "Deployment", "web", "demo"};

static void configure(const char *values, const char *mesh, const char *own)
{
	json_t *v = rig_json(values), *m = rig_json(mesh), *o = rig_json(own);

	inject_config_free(&config);
	config = inject_config_new(v, m, o, &e);
	json_decref(v);
	json_decref(m);
	json_decref(o);
}

#define VALUES "{'global':{'hub':'r.io/i','tag':'1.29.1'}}"

static int setup(void **state)
{
	(void)state;
	e = (struct err){0};
	configure(VALUES, "{}", "{}");
	warnings = json_array();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	inject_config_free(&config);
	json_decref(warnings);
	return 0;
}

static json_t *inject(const json_t *pod)
{
	return inject_pod(config, &owner, pod, warnings, &e);
}

static json_t *must_inject(const char *pod)
{
	json_t *p = rig_json(pod), *out = inject(p);

	if (!out)
		fail_msg("%s", e.msg);
	json_decref(p);
	return out;
}

static void refused(const char *pod, const char *why)
{
	json_t *p = rig_json(pod), *out = inject(p);

	if (out || !strstr(e.msg, why))
		fail_msg("%s: %s", pod, out ? "was taken" : e.msg);
	json_decref(p);
}

#define POD(annotations, spec)                                                                     \
	"{'metadata':{'annotations':{" annotations "}},'spec':{'containers':[{'name':'app'}]" spec \
	"}}"

/* --- what comes in --- */

static void a_pod_of_the_wrong_shape_is_refused(void **state)
{
	(void)state;
	refused("[]", "spec: must be a map");
	refused("{'spec':[]}", "spec: must be a map");
	refused("{'metadata':1,'spec':{}}", "metadata: must be a map");
	refused("{'metadata':{'labels':[]},'spec':{}}", "metadata.labels: must be a map");
	refused("{'metadata':{'labels':{'v':true}},'spec':{}}", "v must be text: quote it");
	refused("{'spec':{}}", "must have a container");
	refused("{'spec':{'containers':{}}}", "spec.containers: must be a list");
	refused("{'spec':{'containers':[{}]}}", "each must have a name");
	refused("{'spec':{'containers':[1]}}", "each must have a name");
	refused("{'spec':{'containers':[{'name':'a'},{'name':'a'}]}}", "two are named \"a\"");
	refused("{'spec':{'containers':[{'name':'a'}],'initContainers':[{'name':'a'}]}}",
	    "spec.initContainers: two are named \"a\"");
	refused("{'spec':{'containers':[{'name':'a'}],'volumes':'x'}}", "spec.volumes: must be");
}

/* `format` has one %s, for n items of which each is `item` with its number. */
static char *with_items(const char *format, const char *item, unsigned n)
{
	auto_free char *all = mem_zalloc(n * 48 + 1);
	char *end = all;

	for (unsigned i = 0; i < n; i++) {
		end += sprintf(end, "%s", i ? "," : "");
		end += sprintf(end, item, i);
	}
	return mem_printf(format, all);
}

static void each_list_and_map_has_a_limit(void **state)
{
	static const struct {
		const char *format, *item, *why;
	} rows[] = {
	    {"{'spec':{'containers':[%s]}}", "{'name':'%u'}", "spec.containers: more than 1000"},
	    {"{'spec':{'containers':[{'name':'a'}],'volumes':[%s]}}", "{'name':'%u'}",
		"spec.volumes: more than 1000"},
	    {"{'spec':{'containers':[{'name':'a','ports':[%s]}]}}", "{'containerPort':%u}",
		"a container's ports: more than 1000"},
	    {"{'spec':{'containers':[{'name':'a'},{'name':'istio-proxy','env':[%s]}]}}",
		"{'name':'%u'}", "a container's env: more than 1000"},
	    {POD("'sidecar.istio.io/userVolume':'{%s}'", ""), "\\'%u\\':{}", "at most 1000 maps"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		auto_free char *most = with_items(rows[i].format, rows[i].item, INJECT_ITEMS_MAX);
		auto_free char *more =
		    with_items(rows[i].format, rows[i].item, INJECT_ITEMS_MAX + 1);

		json_decref(must_inject(most));
		refused(more, rows[i].why);
	}
	auto_free char *labels =
	    with_items("{'metadata':{'labels':{%s}},'spec':{'containers':[{'name':'a'}]}}",
		"'%u':''", INJECT_ITEMS_MAX + 1);
	refused(labels, "metadata.labels: more than 1000"); /* a node takes 256 */
}

static void what_is_read_of_annotations_has_a_limit(void **state)
{
	auto_free char *text = with_items("%s", "%02u", 30000);
	auto_free char *long_one = mem_printf(POD("'proxy.istio.io/config':'%s'", ""), text);
	auto_free char *own = mem_printf(
	    "{'spec':{'containers':[{'name':'a'},{'name':'istio-proxy','x':'%s'}]}}", text);
	auto_free char *values = with_items(
	    POD("'sidecar.istio.io/status':'{\\'undo\\':{},\\'x\\':[%s]}'", ""), "%u", 31000);

	(void)state;
	refused(long_one, "annotation proxy.istio.io/config: more than 64 KiB");
	refused(own, "the pod's own istio-proxy: more than 64 KiB");
	refused(values, "annotation sidecar.istio.io/status: JSON: more than 30000 values");
}

/* An item of its own takes the place of the first one of its key, ours or its own; 1 is not '1'. */
static void lists_are_merged_by_their_keys(void **state)
{
	json_t *pod = must_inject(
	    "{'spec':{'containers':[{'name':'a'}],'initContainers':[{'name':'istio-proxy',"
	    "'env':[{'name':'X','value':'1'},{'name':'POD_NAME','value':'p'},{'name':'X','value':'"
	    "2'},"
	    "{'value':'3'},{'value':'4'}],"
	    "'ports':[{'containerPort':15090,'name':'mine'},{'containerPort':'15090'}]}]}}");
	json_t *proxy = json_array_get(inject_at(pod, "spec.initContainers"), 0);
	json_t *env = json_object_get(proxy, "env"), *ports = json_object_get(proxy, "ports");
	size_t n = json_array_size(env);
	json_t *x = rig_json("{'name':'X','value':'2'}"), *third = rig_json("{'value':'3'}"),
	       *fourth = rig_json("{'value':'4'}");

	(void)state;
	assert_true(json_equal(json_array_get(env, n - 3), x));
	assert_true(json_equal(json_array_get(env, n - 2), third));
	assert_true(json_equal(json_array_get(env, n - 1), fourth));
	for (size_t i = 0; i + 3 < n; i++)
		assert_string_not_equal(
		    json_string_value(json_object_get(json_array_get(env, i), "name")), "X");
	assert_int_equal(json_array_size(ports), 2);
	assert_string_equal(
	    json_string_value(json_object_get(json_array_get(ports, 0), "name")), "mine");
	json_decref(x);
	json_decref(third);
	json_decref(fourth);
	json_decref(pod);
}

static void null_is_as_good_as_nothing(void **state)
{
	json_t *pod = must_inject("{'metadata':null,'spec':{'containers':[{'name':'a'}],"
				  "'volumes':null,'initContainers':null}}");
	json_t *back = inject_take_back(pod, &e);
	json_t *plain = rig_json("{'spec':{'containers':[{'name':'a'}]}}");

	(void)state;
	assert_true(json_equal(back, plain));
	json_decref(back);
	json_decref(plain);
	json_decref(pod);
}

static void refused_by_name(void **state)
{
	(void)state;
	refused(POD("", ",'hostNetwork':true"), "hostNetwork has no network of its own");
	refused(POD("", ",'runtimeClassName':'gvisor'"), "gvisor is a sandbox");
	refused(
	    POD("'inject.istio.io/templates':'gateway'", ""), "\"gateway\" not found; have agentd");
	refused(POD("", ",'volumes':[{'name':'agentd'}]"), "a volume \"agentd\" already");
	refused(POD("", ",'volumes':[{'name':'v','csi':{'driver':'agentd.node.mesh'}}]"),
	    "the volume of agentd.node.mesh needs readOnly: true");
	refused(POD("'sidecar.istio.io/userVolume':'{\\'v\\':{}}'", ",'volumes':[{'name':'v'}]"),
	    "a volume \"v\" already");
	refused(POD("'sidecar.istio.io/status':'{}'", ""), "injected by another injector");
	refused(POD("'sidecar.istio.io/interceptionMode':'TPROXY'", ""), "TPROXY needs iptables");
	refused(POD("'proxy.istio.io/config':'discoveryAddress: a.b:1'", ""), "a.b:1");
	refused(POD("'sidecar.istio.io/proxyCPU':'1x'", ""), "must be a quantity");
	configure("{}", "{}", "{}");
	refused(POD("", ""), "global.hub and global.tag");
}

/* As Istio's own values for Prometheus have it. */
static void volumes_of_an_annotation_may_be_a_list(void **state)
{
	static const char listed[] =
	    POD("'sidecar.istio.io/userVolume':'[{\\'name\\':\\'certs\\',\\'emptyDir\\':{}}]',"
		"'sidecar.istio.io/userVolumeMount':'[{\\'name\\':\\'certs\\',\\'mountPath\\':"
		"\\'/a\\'},{\\'name\\':\\'certs\\',\\'mountPath\\':\\'/b\\'}]'",
		"");
	json_t *pod = must_inject(listed), *at = json_object_get(pod, "spec"), *mounts, *v;
	unsigned found = 0;
	size_t i;

	(void)state;
	json_array_foreach (json_object_get(at, "volumes"), i, v)
		found += !strcmp(json_string_value(json_object_get(v, "name")), "certs");
	mounts = json_object_get(
	    json_array_get(json_object_get(at, "initContainers"), 0), "volumeMounts");
	json_array_foreach (mounts, i, v)
		found += !strcmp(json_string_value(json_object_get(v, "name")), "certs");
	assert_int_equal(found, 3);
	json_decref(pod);
	refused(POD("'sidecar.istio.io/userVolume':'[{\\'emptyDir\\':{}}]'", ""), "with a name");
	refused(POD("'sidecar.istio.io/userVolume':'[1]'", ""), "with a name");
	refused(POD("'sidecar.istio.io/userVolume':'1'", ""), "must be a JSON map");
	refused(
	    POD("'sidecar.istio.io/userVolume':'[{\\'name\\':\\'a\\'},{\\'name\\':\\'a\\'}]'", ""),
	    "a volume \"a\" already");
}

static void only_control_planes_of_the_mesh_may_be_named(void **state)
{
	static const char further[] = POD("'proxy.istio.io/config':'{discoveryAddress: c.d:2, "
					  "proxyMetadata: {CA_ADDR: \\'c.d:2\\'}}'",
	    "");

	(void)state;
	refused(POD("'proxy.istio.io/config':'discoveryAddress: a.b:1'", ""),
	    "PROXY_CONFIG.discoveryAddress");
	refused(further, "\"c.d:2\" refused");
	configure(VALUES, "{}", "{'controlPlanes':['c.d:2']}");
	json_decref(must_inject(further));
	configure("{'global':{'hub':'h','tag':'1','caAddress':'a.b:1'}}",
	    "{'defaultConfig':{'discoveryAddress':'a.b:1'}}", "{}");
	json_decref(must_inject(POD("", "")));
	configure("{'global':{'hub':'h','tag':'1','caAddress':'issuer.cert:443'}}", "{}", "{}");
	refused(POD("", ""),
	    "CA_ADDR: \"issuer.cert:443\" refused; allowed: istiod.istio-system.svc:15012");
}

#define OWN_VARIABLE(name, value)                                                                  \
	POD("", ",'initContainers':[{'name':'istio-proxy','env':[{'name':'" name                   \
		"','value':'" value "'}]}]")

/* A node sees what the volume says, and not what the container does. */
static void variables_of_the_own_container_are_said(void **state)
{
	(void)state;
	json_decref(must_inject(OWN_VARIABLE("SECRET_TTL", "2h")));
	assert_int_equal(json_array_size(warnings), 1);
	assert_non_null(strstr(json_string_value(json_array_get(warnings, 0)),
	    "SECRET_TTL of istio-proxy: agentd does not see it"));
	refused(OWN_VARIABLE("SECRET_TTL", "240h"), "SECRET_TTL");
	refused(OWN_VARIABLE("CA_ADDR", "issuer:443"),
	    "CA_ADDR: \"issuer:443\" refused; allowed: istiod.");
}

/* $(HOST_IP) is known where the pod will be. */
static void an_address_of_the_node_may_be_named(void **state)
{
	(void)state;
	json_decref(
	    must_inject(POD("'proxy.istio.io/config':'statsdUdpAddress: $(HOST_IP):8125'", "")));
	refused(POD("'proxy.istio.io/config':'statsdUdpAddress: statsd:8125'", ""), "IP:PORT");
	refused(
	    POD("'proxy.istio.io/config':'tracing: {lightstep: {address: a:1}}'", ""), "lightstep");
}

static void configuration_is_checked(void **state)
{
	static const char *const bad[][2] = {{"{'nativ':true}", "no such key \"nativ\""},
	    {"{'native':'yes'}", "agentd.native: must be true or false"},
	    {"{'network':1}", "agentd.network: must be text"},
	    {"{'sandboxedRuntimeClasses':[1]}", "must be a list of texts"},
	    {"{'ipFamily':'v4'}", "allowed: ipv4, ipv6"},
	    {"{'redirectMode':'x'}", "allowed: ebpf, istio-cni, istio-init, none"},
	    {"[]", "agentd: must be a map"}};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		configure(VALUES, "{}", bad[i][0]);
		assert_null(config);
		assert_non_null(strstr(e.msg, bad[i][1]));
	}
	configure("[]", "{}", "{}");
	assert_non_null(strstr(e.msg, "values: must be a map"));
}

static void its_own_wish_decides(void **state)
{
	static const struct {
		const char *pod, *ns;
		bool yes;
		const char *why;
	} rows[] = {
	    {"{}", "demo", true, "by default"},
	    {"{'spec':{'hostNetwork':true}}", "demo", false, "hostNetwork"},
	    {"{}", "kube-system", false, "a namespace of Kubernetes' own"},
	    {"{'metadata':{'labels':{'sidecar.istio.io/inject':'false'}}}", "", false, "label"},
	    {"{'metadata':{'annotations':{'sidecar.istio.io/inject':'false'}}}", "", false,
		"annotation"},
	    {"{'metadata':{'labels':{'sidecar.istio.io/inject':'true'},"
	     "'annotations':{'sidecar.istio.io/inject':'false'}}}",
		"", true, "\"true\""},
	    {"{'metadata':{'labels':{'sidecar.istio.io/inject':''},"
	     "'annotations':{'sidecar.istio.io/inject':'false'}}}",
		"", false, "annotation"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		json_t *pod = rig_json(rows[i].pod);
		struct inject_rule r = inject_rule_of(pod, rows[i].ns);

		assert_int_equal(r.yes, rows[i].yes);
		assert_non_null(strstr(r.why, rows[i].why));
		assert_int_equal(!r.skip, rows[i].yes);
		json_decref(pod);
	}
}

static void what_has_no_effect_is_said(void **state)
{
	static const char *const said[] = {"annotation sidecar.istio.io/capNetBindService has no",
	    "annotation agentd.node.mesh/redirct (nearest",
	    "PROXY_CONFIG.readinessProbe has no effect yet"};
	json_t *pod = must_inject(POD("'sidecar.istio.io/capNetBindService':'true',"
				      "'agentd.node.mesh/redirct':'none',"
				      "'proxy.istio.io/config':'readinessProbe: {}'",
	    ""));

	(void)state;
	assert_int_equal(json_array_size(warnings), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_non_null(strstr(json_string_value(json_array_get(warnings, i)), said[i]));
	json_decref(pod);
	json_array_clear(warnings);
	pod = must_inject(POD("'proxy.istio.io/config':'proxyMetadata: {ISTIO_META_DNS_CAPTURE: "
			      "\\'true\\', SECRET_TTL: 2h}'",
	    ""));
	assert_int_equal(json_array_size(warnings), 0);
	json_decref(pod);
}

/* --- and back --- */

static void comes_back(const char *text)
{
	json_t *before = rig_json(text), *once = inject(before), *twice, *back;

	if (!once)
		fail_msg("%s", e.msg);
	twice = inject(once);
	back = inject_take_back(once, &e);
	assert_true(json_equal(once, twice));
	assert_true(json_equal(back, before));
	assert_true(inject_is_injected(once) && !inject_is_injected(back));
	json_decref(before);
	json_decref(once);
	json_decref(twice);
	json_decref(back);
}

#define OWN                                                                                        \
	",{'name':'istio-proxy','image':'auto','resources':{'requests':{'cpu':'7m'}}},{'name':'b'" \
	"}"

static const char *label_of(const json_t *pod, const char *map, const char *name)
{
	const json_t *metadata = json_object_get(pod, "metadata");

	return json_string_value(json_object_get(json_object_get(metadata, map), name));
}

/* Where istiod injects others, a label keeps it away; one that is there is never changed. */
static void istiod_is_kept_away(void **state)
{
	static const char wish[] = "sidecar.istio.io/inject";
	json_t *pod, *again, *back;

	(void)state;
	pod = must_inject(POD("", ""));
	assert_null(label_of(pod, "labels", wish));
	json_decref(pod);
	configure(VALUES, "{}", "{'hideFromIstiod':true}");
	pod = must_inject(POD("", ""));
	assert_string_equal(label_of(pod, "labels", wish), "false");
	again = inject(pod);
	assert_true(json_equal(pod, again));
	back = inject_take_back(pod, &e);
	assert_null(label_of(back, "labels", wish));
	json_decref(pod);
	json_decref(again);
	json_decref(back);
	refused("{'metadata':{'labels':{'sidecar.istio.io/inject':'true'}},"
		"'spec':{'containers':[{'name':'a'}]}}",
	    "istiod's injector would inject this pod, too");
}

static void a_webhooks_annotations_win_and_are_taken_back(void **state)
{
	json_t *pod, *again, *back, *plain = rig_json(POD("'own':'1'", ""));

	(void)state;
	config->annotations = rig_json("{'own':'2','kubectl.kubernetes.io/default-container':'x'}");
	pod = inject(plain);
	assert_string_equal(label_of(pod, "annotations", "own"), "2");
	assert_string_equal(
	    label_of(pod, "annotations", "kubectl.kubernetes.io/default-container"), "x");
	again = inject(pod);
	assert_true(json_equal(pod, again));
	back = inject_take_back(pod, &e);
	assert_true(json_equal(back, plain));
	json_decref(config->annotations);
	json_decref(plain);
	json_decref(pod);
	json_decref(again);
	json_decref(back);
}

static void all_of_it_is_taken_back(void **state)
{
	(void)state;
	for (int native = 0; native < 2; native++) {
		configure("{'global':{'hub':'r.io/i','tag':'1','imagePullSecrets':['s','t']}}",
		    "{}",
		    native ? "{'redirectMode':'istio-init'}"
			   : "{'redirectMode':'istio-init','native':false}");
		comes_back("{'spec':{'containers':[{'name':'app'}]}}");
		comes_back("{'metadata':{},'spec':{'containers':[{'name':'app'}]}}");
		comes_back("{'metadata':{'labels':{}},'spec':{'containers':[{'name':'app'}],"
			   "'volumes':[],'initContainers':[]}}");
		comes_back("{'spec':{'containers':[{'name':'app'}" OWN "]}}");
		comes_back(
		    "{'spec':{'containers':[{'name':'app'}],'initContainers':[{'name':'x'}" OWN
		    "]}}");
		comes_back(
		    "{'spec':{'containers':[{'name':'app'}],'imagePullSecrets':[{'name':'t'},"
		    "{'name':'u'}]}}");
		comes_back(
		    "{'metadata':{'annotations':{'prometheus.io/port':'9090','istio.io/rev':'x',"
		    "'prometheus_io_scrape':'true'}},'spec':{'containers':[{'name':'app',"
		    "'ports':[{'name':'http','containerPort':80}],"
		    "'livenessProbe':{'httpGet':{'port':'http','scheme':'HTTPS'}},"
		    "'startupProbe':{'grpc':{'port':7}},"
		    "'lifecycle':{'preStop':{'tcpSocket':{'port':9}}}}]}}");
	}
}

/* What a pod's owner writes there is his: it is read, and reaches nothing else. */
static void a_hostile_status_is_refused_or_harmless(void **state)
{
	static const char *const bad[] = {"''", "'['", "'[]'", "'{\"undo\":[]}'",
	    "'{\"undo\":{\"at\":1}}'", "'{\"undo\":{\"at\":[\"spec\",0]}}'",
	    "'{\"undo\":{\"at\":[\"containers\",-1]}}'", "'{\"undo\":{},\"containers\":[\"app\"]}'",
	    "'{\"undo\":{\"metadata\":{\"labels\":{\"x\":1}}}}'"};
	static const char *const harmless[] = {"{\"undo\":{\"spec\":{\"containers\":null}}}",
	    "{\"undo\":{\"spec\":{\"hostNetwork\":true,\"volumes\":[1]}}}",
	    "{\"undo\":{\"metadata\":{\"name\":null}}}",
	    "{\"undo\":{\"probes\":{\"app\":{\"image\":\"evil\"}}}}"};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		json_t *pod =
		    rig_json("{'metadata':{'labels':{},'annotations':{}},'spec':{'containers':["
			     "{'name':'app'}]}}");
		auto_free char *text = mem_strdup(bad[i] + 1);

		text[strlen(text) - 1] = '\0';
		json_object_set_new(
		    json_object_get(json_object_get(pod, "metadata"), "annotations"),
		    "sidecar.istio.io/status", json_string(text));
		assert_null(inject(pod));
		json_decref(pod);
	}
	for (unsigned i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
		json_t *pod =
		    rig_json("{'metadata':{'name':'n','annotations':{}},'spec':{'containers':["
			     "{'name':'app','image':'good'}]}}");
		json_t *back, *spec = json_deep_copy(json_object_get(pod, "spec"));

		json_object_set_new(
		    json_object_get(json_object_get(pod, "metadata"), "annotations"),
		    "sidecar.istio.io/status", json_string(harmless[i]));
		back = inject_take_back(pod, &e);
		assert_true(json_equal(json_object_get(back, "spec"), spec));
		assert_non_null(json_object_get(json_object_get(back, "metadata"), "name"));
		json_decref(back);
		json_decref(spec);
		json_decref(pod);
	}
}

/* The API server has yet to name it, and nobody owns it. */
static void a_name_to_come_is_known_by_its_beginning(void **state)
{
	const struct inject_owner none = {"v1", "Pod", "", "demo"};
	json_t *pod =
	    rig_json("{'metadata':{'generateName':'web-'},'spec':{'containers':[{'name':'a'}]}}");
	json_t *out = inject_pod(config, &none, pod, warnings, &e), *labels;

	(void)state;
	assert_non_null(out);
	labels = json_object_get(json_object_get(out, "metadata"), "labels");
	assert_string_equal(
	    json_string_value(json_object_get(labels, "service.istio.io/canonical-name")), "web");
	json_decref(out);
	json_decref(pod);
}

/* A label begins and ends with a letter or a digit. */
static void a_canonical_name_is_cut_to_a_label(void **state)
{
	static const struct {
		const char *name, *label;
	} rows[] = {
	    {"recommendation-service-for-the-northern-region-shadow-trafficx.v2-predictor",
		"recommendation-service-for-the-northern-region-shadow-trafficx"},
	    {"recommendation-service-for-the-northern-region-shadow-traffic--blue-predictor",
		"recommendation-service-for-the-northern-region-shadow-traffic"},
	    {"recommendation-service-for-the-northern-region-shadow-trafficx-green",
		"recommendation-service-for-the-northern-region-shadow-trafficx"},
	    {"-._a-._", "a"},
	    {"web", "web"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct inject_owner named = {"apps/v1", "Deployment", rows[i].name, "demo"};
		json_t *pod = rig_json("{'spec':{'containers':[{'name':'a'}]}}");
		json_t *out = inject_pod(config, &named, pod, warnings, &e), *labels;

		labels = json_object_get(json_object_get(out, "metadata"), "labels");
		assert_string_equal(
		    json_string_value(json_object_get(labels, "service.istio.io/canonical-name")),
		    rows[i].label);
		json_decref(out);
		json_decref(pod);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_name_to_come_is_known_by_its_beginning),
	    TEST(a_canonical_name_is_cut_to_a_label),
	    TEST(a_pod_of_the_wrong_shape_is_refused),
	    TEST(each_list_and_map_has_a_limit),
	    TEST(what_is_read_of_annotations_has_a_limit),
	    TEST(lists_are_merged_by_their_keys),
	    TEST(null_is_as_good_as_nothing),
	    TEST(refused_by_name),
	    TEST(an_address_of_the_node_may_be_named),
	    TEST(volumes_of_an_annotation_may_be_a_list),
	    TEST(only_control_planes_of_the_mesh_may_be_named),
	    TEST(variables_of_the_own_container_are_said),
	    TEST(configuration_is_checked),
	    TEST(its_own_wish_decides),
	    TEST(what_has_no_effect_is_said),
	    TEST(istiod_is_kept_away),
	    TEST(a_webhooks_annotations_win_and_are_taken_back),
	    TEST(all_of_it_is_taken_back),
	    TEST(a_hostile_status_is_refused_or_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
