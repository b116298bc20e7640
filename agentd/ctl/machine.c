/* machine.c - cluster.env over mesh.yaml's proxyMetadata -> each key by the table below: identity,
 * labels, a key of redirect:, left out with a reason, or env as it is -> the rest of defaultConfig
 * is PROXY_CONFIG -> printed as YAML whose texts are JSON's, which is YAML as well.
 *
 * agentd judges the manifest again, by rules of its own (docs/ENVIRONMENT.md).
 */
#include "machine.h"
#include "base/json_text.h"
#include "base/yaml.h"
#include "cluster_env.h"
#include "common/err.h"
#include "common/mem.h"
#include "mesh/proxy_fields.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 256, NS_MAX = 63, SUBDOMAIN_MAX = 253 };

static const char address_default[] = "istiod.istio-system.svc:15012";

enum fate { OURS, REDIRECT, LEFT };

static const struct rule {
	const char *key;
	enum fate fate;
	const char *as; /* REDIRECT: the key there; LEFT: why */
} rules[] = {
    {"POD_NAMESPACE", OURS, NULL},
    {"ISTIO_NAMESPACE", OURS, NULL},
    {"SERVICE_ACCOUNT", OURS, NULL},
    {"ISTIO_METAJSON_LABELS", OURS, NULL},
    {"ISTIO_INBOUND_PORTS", REDIRECT, "istio_inbound_ports"},
    {"ISTIO_LOCAL_EXCLUDE_PORTS", REDIRECT, "istio_local_exclude_ports"},
    {"ISTIO_SERVICE_CIDR", REDIRECT, "istio_service_cidr"},
    {"ISTIO_SERVICE", LEFT, "istiod finds the workload's services by its labels"},
    {"PROXY_CONFIG", LEFT, "mesh.yaml has it"},
    {"CANONICAL_SERVICE", LEFT, "istiod takes it from the labels"},
    {"CANONICAL_REVISION", LEFT, "istiod takes it from the labels"},
};

struct reader {
	struct machine *out;
	json_t *env;      /* cluster.env over proxyMetadata */
	json_t *config;   /* defaultConfig, without what went elsewhere */
	json_t *labels;   /* strings */
	json_t *redirect; /* strings */
	const char *name, *ns, *sa;
};

/* --- what is read --- */

static const char *value_of(const struct reader *r, const char *key)
{
	const char *v = json_string_value(json_object_get(r->env, key));

	return v && *v ? v : NULL;
}

static void leave(struct reader *r, const char *what, const char *why)
{
	char printable[80];

	err_printable(printable, sizeof(printable), what, (unsigned)strlen(what));
	json_object_set_new(r->out->left, printable, json_string(why));
}

static bool has_long_key(const json_t *v)
{
	const json_t *child;
	const char *key;
	size_t i;

	json_object_foreach ((json_t *)v, key, child)
		if (strlen(key) > KEY_MAX || has_long_key(child))
			return true;
	json_array_foreach (v, i, child)
		if (has_long_key(child))
			return true;
	return false;
}

/* Variables of cluster.env win over proxyMetadata: Istio's start script exports them. */
static int take_config(struct reader *r, json_t *root, struct err *e)
{
	json_t *config = json_object_get(root, "defaultConfig"), *value;
	const char *key;

	if (!json_is_object(root))
		return err_set(e, EINVAL, "mesh.yaml: no map with a map defaultConfig");
	if (has_long_key(root))
		return err_set(e, EINVAL, "mesh.yaml: a key of more than %d bytes", KEY_MAX);
	json_object_foreach (root, key, value)
		if (value != config)
			leave(r, key, "only defaultConfig of mesh.yaml is a workload's");
	if (!(r->config = proxy_fields_read("mesh.yaml: defaultConfig", config, e)))
		return -1;
	json_object_update_missing(r->env, json_object_get(r->config, "proxyMetadata"));
	json_object_del(r->config, "proxyMetadata");
	if (json_object_get(json_object_get(r->config, "readinessProbe"), "exec")) {
		json_object_del(r->config, "readinessProbe");
		leave(r, "readinessProbe", "agentd runs no program: let the app answer httpGet");
	}
	return 0;
}

static int read_mesh(struct reader *r, const struct machine_files *f, struct err *e)
{
	json_t *root = yaml_typed(f->mesh, f->mesh_size, e);
	int rc;

	if (!root)
		return err_wrap(e, "mesh.yaml");
	rc = take_config(r, root, e);
	json_decref(root);
	return rc;
}

static bool has_controls(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f ||
		    ((unsigned char)*s == 0xc2 && (unsigned char)s[1] < 0xa0))
			return true;
	return false;
}

static int read_labels(struct reader *r, struct err *e)
{
	const char *text = value_of(r, "ISTIO_METAJSON_LABELS"), *key;
	json_t *labels, *value;

	if (!text)
		return 0;
	labels = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_object_foreach (labels, key, value)
		if (!json_is_string(value) || has_controls(key) || strlen(key) > KEY_MAX ||
		    has_controls(json_string_value(value))) {
			json_decref(labels);
			labels = NULL;
			break;
		}
	if (!json_is_object(labels)) {
		json_decref(labels);
		return err_set(e, EINVAL, "ISTIO_METAJSON_LABELS: not a JSON object of texts");
	}
	json_object_update(r->labels, labels);
	json_decref(labels);
	return 0;
}

/* As Kubernetes names things; agentd looks again. */
static bool is_dns(const char *s, size_t max, const char *allowed)
{
	size_t n = strlen(s);

	return n && n <= max && strspn(s, allowed) == n && !strchr("-.", s[0]) &&
	       !strchr("-.", s[n - 1]);
}

static int check_identity(struct reader *r, struct err *e)
{
	const char *pod = value_of(r, "POD_NAMESPACE"), *istio = value_of(r, "ISTIO_NAMESPACE");

	r->ns = pod ? pod : istio;
	r->sa = value_of(r, "SERVICE_ACCOUNT");
	if (!r->ns || !r->sa)
		return err_set(e, EINVAL, "%s is neither in cluster.env nor in mesh.yaml",
		    r->ns ? "SERVICE_ACCOUNT" : "POD_NAMESPACE");
	if (pod && istio && strcmp(pod, istio) != 0)
		return err_set(e, EINVAL, "POD_NAMESPACE and ISTIO_NAMESPACE disagree");
	if (!is_dns(r->ns, NS_MAX, "abcdefghijklmnopqrstuvwxyz0123456789-") ||
	    !is_dns(r->sa, SUBDOMAIN_MAX, "abcdefghijklmnopqrstuvwxyz0123456789-."))
		return err_set(e, EINVAL, "namespace or service account is not a DNS name");
	if (!is_dns(r->name, SUBDOMAIN_MAX, "abcdefghijklmnopqrstuvwxyz0123456789-."))
		return err_set(e, EINVAL,
		    "the name of the machine is not a DNS name in lower case: give one with "
		    "--name");
	return 0;
}

/* What has another place than env goes there. */
static void sort_keys(struct reader *r)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		const char *value = value_of(r, rules[i].key);

		if (value && rules[i].fate == REDIRECT)
			json_object_set_new(r->redirect, rules[i].as, json_string(value));
		if (value && rules[i].fate == LEFT)
			leave(r, rules[i].key, rules[i].as);
		json_object_del(r->env, rules[i].key);
	}
}

/* FNV-1a, twice; a uid is no secret. */
static uint64_t digest(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 1099511628211U;
	return h;
}

/* RFC 9562, version 8. */
static void make_uid(struct reader *r)
{
	auto_free char *label = mem_printf("%s/%s", r->ns, r->name);
	uint64_t halves[] = {
	    digest(14695981039346656037U, label), digest(0x9e3779b97f4a7c15U, label)};
	uint8_t *bytes = r->out->uid.bytes;

	for (unsigned i = 0; i < sizeof(r->out->uid.bytes); i++)
		bytes[i] = (uint8_t)(halves[i / 8] >> (8 * (i % 8)));
	bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x80);
	bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
}

/* --- what is written --- */

/* Characters that JSON has as they are and YAML has not, or takes for line breaks; NULL: any other
 * one. */
static const char *escape_of(const char *c)
{
	static const struct {
		const char *bytes, *escape;
	} all[] = {{"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"},
	    {"\xef\xbb\xbf", "\\ufeff"}, {"\xef\xbf\xbe", "\\ufffe"}, {"\xef\xbf\xbf", "\\uffff"}};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strncmp(c, all[i].bytes, 3))
			return all[i].escape;
	return NULL;
}

static void put_json(FILE *out, const json_t *v, size_t flags, const char *indent)
{
	auto_free char *text = json_text(v, JSON_ENCODE_ANY | flags);
	const char *escape;

	for (const char *c = text; *c; c++) {
		if ((escape = escape_of(c))) {
			fputs(escape, out);
			c += 2;
			continue;
		}
		fputc(*c, out);
		if (*c == '\n')
			fputs(indent, out);
	}
}

static void put_text(FILE *out, const char *key, const char *value)
{
	json_t *text = json_string(value);

	fprintf(out, "%s: ", key);
	put_json(out, text, 0, "");
	fputc('\n', out);
	json_decref(text);
}

static void put_map(FILE *out, const char *key, const json_t *map)
{
	const char *k;
	json_t *value, *name;

	if (json_object_size(map))
		fprintf(out, "%s:\n", key);
	json_object_foreach ((json_t *)map, k, value) {
		name = json_string(k);
		fputs("  ", out);
		put_json(out, name, 0, "");
		fputs(": ", out);
		put_json(out, value, 0, "");
		fputc('\n', out);
		json_decref(name);
	}
}

/* As a block, so that a person can change it. */
static void put_env(FILE *out, const struct reader *r)
{
	put_map(out, "env", r->env);
	if (!json_object_size(r->config))
		return;
	if (!json_object_size(r->env))
		fputs("env:\n", out);
	fputs("  PROXY_CONFIG: |\n    ", out);
	put_json(out, r->config, JSON_INDENT(2), "    ");
	fputc('\n', out);
}

static char *manifest_text(const struct reader *r)
{
	char uid[UUID_TEXT_SIZE], *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		abort();
	uuid_format(&r->out->uid, uid);
	fprintf(out, "# made by agentctl manifest, of the files of istioctl x workload entry "
		     "configure\n");
	put_text(out, "uid", uid);
	put_text(out, "name", r->name);
	put_text(out, "namespace", r->ns);
	put_text(out, "service_account", r->sa);
	put_text(out, "identity", "certificate"); /* nobody renews the token of Istio's tool */
	put_map(out, "labels", r->labels);
	put_env(out, r);
	put_map(out, "redirect", r->redirect);
	if (fclose(out))
		abort();
	return text;
}

static void put_pair(FILE *out, const char *key, const char *value)
{
	json_t *text = value ? json_string(value) : NULL;

	if (!text)
		return;
	fprintf(out, ", %s: ", key);
	put_json(out, text, JSON_ENSURE_ASCII, "");
	json_decref(text);
}

static char *plane_text(const struct reader *r)
{
	const char *address = json_string_value(json_object_get(r->config, "discoveryAddress"));
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		abort();
	if (!address)
		address = value_of(r, "CA_ADDR");
	fputs("- {name: istiod", out);
	put_pair(out, "address", address ? address : address_default);
	put_pair(out, "cluster_id", value_of(r, "ISTIO_META_CLUSTER_ID"));
	put_pair(out, "mesh_id", value_of(r, "ISTIO_META_MESH_ID"));
	put_pair(out, "trust_domain", value_of(r, "TRUST_DOMAIN"));
	fputc('}', out);
	if (fclose(out))
		abort();
	return text;
}

/* --- both --- */

static int read_all(struct reader *r, const struct machine_files *f, struct err *e)
{
	if (!(r->env = cluster_env_parse(f->env, f->env_size, e)))
		return -1;
	return read_mesh(r, f, e) || read_labels(r, e) || check_identity(r, e) ? -1 : 0;
}

int machine_read(struct machine *m, const struct machine_files *f, struct err *e)
{
	struct reader r = {
	    .out = m, .labels = json_object(), .redirect = json_object(), .name = f->name};
	int rc;

	*m = (struct machine){.left = json_object()};
	rc = read_all(&r, f, e);
	if (!rc) {
		auto_free char *ns = mem_strdup(r.ns), *sa = mem_strdup(r.sa);

		r.ns = ns; /* they were env's */
		r.sa = sa;
		make_uid(&r);
		sort_keys(&r);
		m->plane = plane_text(&r);
		m->manifest = manifest_text(&r);
	}
	json_decref(r.env);
	json_decref(r.config);
	json_decref(r.labels);
	json_decref(r.redirect);
	if (rc)
		machine_clear(m);
	return rc;
}

void machine_clear(struct machine *m)
{
	free(take(m->manifest));
	free(take(m->plane));
	json_decref(take(m->left));
}
