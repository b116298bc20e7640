/* proxy.c - the container istio-proxy: Envoy alone, started as pilot-agent starts it.
 *
 * Image, arguments, probes and the rest are the table of injection.md 5; where a pod's annotation,
 * its ProxyConfig and the values all say something, they win in this order.
 */
#include "common/mem.h"
#include "inject_internal.h"
#include "mesh/duration.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- resources --- */

/* null means "none" in Helm's values. */
static void drop_nulls(json_t *o)
{
	const char *key;
	json_t *v;
	void *next;

	json_object_foreach_safe (o, next, key, v) {
		if (json_is_null(v))
			json_object_del(o, key);
		else if (json_is_object(v))
			drop_nulls(v);
	}
}

json_t *inject_resources(const struct inject_job *j)
{
	static const char *const asked[][3] = {{"proxyCPU", "requests", "cpu"},
	    {"proxyMemory", "requests", "memory"}, {"proxyCPULimit", "limits", "cpu"},
	    {"proxyMemoryLimit", "limits", "memory"}};
	json_t *from = inject_at(j->config->values, "global.proxy.resources");
	json_t *own = json_object(), *all;

	for (unsigned i = 0; i < 4; i++) {
		auto_free char *name = mem_printf("sidecar.istio.io/%s", asked[i][0]);
		const char *v = inject_annotation(j, name);

		if (!v || !*v)
			continue;
		if (!json_object_get(own, asked[i][1]))
			json_object_set_new(own, asked[i][1], json_object());
		json_object_set_new(json_object_get(own, asked[i][1]), asked[i][2], json_string(v));
	}
	if (json_object_size(own))
		return own;
	json_decref(own);
	all = json_is_object(from) ? json_deep_copy(from) : json_object();
	drop_nulls(all);
	return all;
}

long inject_cores(const json_t *resources)
{
	auto_free char *text = inject_text(resources, "limits.cpu");
	char *end;
	double n;

	if (!text)
		return 0;
	n = strtod(text, &end);
	if (end == text || !(n > 0) || n > 1e9)
		return 0;
	if (!strcmp(end, "m"))
		n /= 1000;
	else if (*end)
		return 0;
	return (long)ceil(n);
}

/* --- arguments --- */

static void say(json_t *list, const char *text)
{
	json_array_append_new(list, json_string(text));
}

static void say_number(json_t *list, const char *flag, int64_t n)
{
	say(list, flag);
	json_array_append_new(list, json_sprintf("%lld", (long long)n));
}

/* A duration of ProxyConfig; `otherwise` also where it cannot be read, which a node refuses. */
static int64_t field_ms(const struct inject_job *j, const char *field, int64_t otherwise)
{
	auto_free char *text = inject_proxy_field(j, field, "");
	int64_t ms;

	return *text && duration_parse(text, &ms) ? ms : otherwise;
}

/* Istio's own: its bootstrap says them (istio-agent.md 8.4). */
static const char log_text[] = "%Y-%m-%dT%T.%fZ\t%l\tenvoy %n %g:%#\t%v\tthread=%t";
static const char log_json[] =
    "{\"level\":\"%l\",\"time\":\"%Y-%m-%dT%T.%fZ\",\"scope\":\"envoy %n\",\"msg\":\"%j\","
    "\"caller\":\"%g:%#\",\"thread\":\"%t\"}";

static void say_level(const struct inject_job *j, json_t *args)
{
	auto_free char *level = inject_annotation_or(
	    j, "sidecar.istio.io/logLevel", "global.proxy.logLevel", "warning");
	auto_free char *components = inject_annotation_or(
	    j, "sidecar.istio.io/componentLogLevel", "global.proxy.componentLogLevel", "");

	say(args, "-l");
	say(args, level);
	if (*components) {
		say(args, "--component-log-level");
		say(args, components);
	}
	say(args, "--skip-deprecated-logs");
	say(args, "--log-format");
	say(args, inject_true(j->config->values, "global.logAsJson") ? log_json : log_text);
}

static void say_threads(const struct inject_job *j, json_t *args, const json_t *resources)
{
	auto_free char *asked = inject_proxy_field(j, "concurrency", "");
	long cores = inject_cores(resources);

	if (!*asked && !cores)
		return;
	if (!strcmp(asked, "0"))
		return;
	say(args, "--concurrency");
	if (*asked)
		say(args, asked);
	else
		json_array_append_new(args, json_sprintf("%ld", cores));
}

static json_t *arguments(const struct inject_job *j, const json_t *resources)
{
	auto_free char *kb = inject_proxy_field(j, "fileFlushMinSizeKb", "");
	json_t *args = json_pack("[s,s]", "-c", "./etc/istio/proxy/envoy-rev.json");

	say_number(args, "--drain-time-s", field_ms(j, "drainDuration", 45000) / 1000);
	say(args, "--drain-strategy");
	say(args, "immediate");
	say(args, "--local-address-ip-version");
	say(args, j->config->ipv6 ? "v6" : "v4");
	say_number(args, "--file-flush-interval-msec", field_ms(j, "fileFlushInterval", 1000));
	if (*kb) {
		say(args, "--file-flush-min-size-kb");
		say(args, kb);
	}
	say(args, "--disable-hot-restart");
	say(args, "--allow-unknown-static-fields");
	say_level(j, args);
	say_threads(j, args, resources);
	/* The bootstrap is written before the pod has an address. */
	say(args, "--config-yaml");
	json_array_append_new(args,
	    json_sprintf("{\"node\": {\"id\": "
			 "\"sidecar~$(INSTANCE_IP)~$(POD_NAME).$(POD_NAMESPACE)~$(POD_NAMESPACE)"
			 ".svc.%s\", \"metadata\": {\"INSTANCE_IPS\": \"$(INSTANCE_IPS)\"}}}",
		j->config->cluster_domain));
	return args;
}

/* --- the rest of it --- */

static json_t *environment(const struct inject_job *j)
{
	static const char *const fields[][2] = {{"INSTANCE_IP", "status.podIP"},
	    {"INSTANCE_IPS", "status.podIPs"}, {"POD_NAME", "metadata.name"},
	    {"POD_NAMESPACE", "metadata.namespace"}};
	json_t *env = json_array();

	for (unsigned i = 0; i < 4; i++)
		json_array_append_new(env, json_pack("{s:s, s:{s:{s:s}}}", "name", fields[i][0],
					       "valueFrom", "fieldRef", "fieldPath", fields[i][1]));
	if (!j->config->istio_cni) /* istio-cni leaves such a pod alone */
		json_array_append_new(
		    env, json_pack("{s:s, s:s}", "name", "DISABLE_ENVOY", "value", "true"));
	return env;
}

/* Envoy drains before TERM ends it; a native one when the pod is deleted, a classic one while the
 * app still answers.  The image's own client does it: POST cannot be asked of the kubelet. */
static json_t *before_stop(const struct inject_job *j)
{
	json_t *grace = inject_at(j->spec, "terminationGracePeriodSeconds");
	bool none = !strcmp(j->status_port, "0");

	if (j->native && none)
		return json_pack("{s:{s:[s,s,s,s]}}", "exec", "command",
		    "/usr/local/bin/pilot-agent", "request", "POST",
		    "drain_listeners?inboundonly&graceful&skip_exit");
	if (j->native)
		return json_pack("{s:{s:[s,s,o,s,s]}}", "exec", "command",
		    "/usr/local/bin/pilot-agent", "request",
		    json_sprintf("--debug-port=%s", j->status_port), "POST", "drain");
	if (none)
		return NULL;
	return json_pack("{s:{s:[s,s,s,o,s,o,s,s]}}", "exec", "command",
	    "/usr/local/bin/pilot-agent", "wait", "--url",
	    json_sprintf(
		"http://%s:%s/drain/wait", j->config->ipv6 ? "[::1]" : "127.0.0.1", j->status_port),
	    "--timeoutSeconds",
	    json_sprintf(
		"%lld", json_is_integer(grace) ? (long long)json_integer_value(grace) : 30),
	    "--requestTimeoutMillis", "2000");
}

static json_t *lifecycle(const struct inject_job *j)
{
	json_t *given = inject_at(j->config->values, "global.proxy.lifecycle");
	json_t *stop, *out;

	if (json_object_size(given))
		return json_deep_copy(given);
	out = json_object();
	if (j->hold)
		json_object_set_new(out, "postStart",
		    json_pack(
			"{s:{s:[s,s]}}", "exec", "command", "/usr/local/bin/pilot-agent", "wait"));
	if ((stop = before_stop(j)))
		json_object_set_new(out, "preStop", stop);
	return out;
}

static json_int_t number(
    const struct inject_job *j, const char *annotation, const char *path, const char *otherwise)
{
	auto_free char *text = annotation ? inject_annotation_or(j, annotation, path, otherwise)
					  : inject_text(j->config->values, path);

	return (json_int_t)strtoll(text ? text : otherwise, NULL, 10);
}

/* Envoy serves 15021 by itself: agentd may be away. */
static json_t *probe(json_int_t period, json_int_t failures)
{
	return json_pack("{s:{s:s, s:i}, s:I, s:i, s:I}", "httpGet", "path", "/healthz/ready",
	    "port", 15021, "periodSeconds", period, "timeoutSeconds", 3, "failureThreshold",
	    failures);
}

#define READINESS "readiness.status.sidecar.istio.io/"

static void add_probes(const struct inject_job *j, json_t *c)
{
	json_t *ready = probe(
	    number(j, READINESS "periodSeconds", "global.proxy.readinessPeriodSeconds", "15"),
	    number(j, READINESS "failureThreshold", "global.proxy.readinessFailureThreshold", "4"));

	json_object_set_new(ready, "initialDelaySeconds",
	    json_integer(number(j, READINESS "initialDelaySeconds",
		"global.proxy.readinessInitialDelaySeconds", "0")));
	json_object_set_new(c, "startupProbe",
	    probe(1, number(j, NULL, "global.proxy.startupProbe.failureThreshold", "600")));
	json_object_set_new(c, "readinessProbe", ready);
}

static json_t *mounts(const struct inject_job *j)
{
	json_t *list = json_pack("[{s:s, s:s, s:b}, {s:s, s:s, s:b}]", "name", INJECT_VOLUME,
	    "mountPath", "/etc/istio/proxy", "readOnly", 1, "name", INJECT_VOLUME, "mountPath",
	    "/var/run/secrets/workload-spiffe-uds", "readOnly", 1);

	json_array_extend(list, j->user_mounts);
	return list;
}

json_t *inject_proxy_container(const struct inject_job *j)
{
	auto_free char *policy = inject_text(j->config->values, "global.imagePullPolicy");
	json_t *resources = inject_resources(j);
	json_t *c = json_pack("{s:s, s:s}", "name", INJECT_PROXY, "image", j->image);

	if (policy)
		json_object_set_new(c, "imagePullPolicy", json_string(policy));
	if (j->native)
		json_object_set_new(c, "restartPolicy", json_string("Always"));
	json_object_set_new(c, "command", json_pack("[s]", "/usr/local/bin/envoy"));
	json_object_set_new(c, "workingDir", json_string("/"));
	json_object_set_new(c, "args", arguments(j, resources));
	json_object_set_new(c, "env", environment(j));
	json_object_set_new(c, "ports",
	    json_pack("[{s:s, s:i, s:s}]", "name", "http-envoy-prom", "containerPort", 15090,
		"protocol", "TCP"));
	json_object_set_new(c, "lifecycle", lifecycle(j));
	add_probes(j, c);
	json_object_set_new(c, "resources", resources);
	/* agentd tells Envoy's own connections from the app's by the user: it cannot be another. */
	json_object_set_new(c, "securityContext",
	    json_pack("{s:b, s:{s:[s]}, s:b, s:b, s:i, s:i, s:b, s:{s:s}}",
		"allowPrivilegeEscalation", 0, "capabilities", "drop", "ALL", "privileged", 0,
		"readOnlyRootFilesystem", 1, "runAsUser", 1337, "runAsGroup", 1337, "runAsNonRoot",
		1, "seccompProfile", "type", "RuntimeDefault"));
	json_object_set_new(c, "volumeMounts", mounts(j));
	return c;
}
