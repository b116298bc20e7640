/* planes.c - the list of control planes: each a map of its own keys.
 *
 * Missing keys are completed from the others.  Then each plane must be unique by name (for
 * `agentctl`) and by address (for pods).
 */
#include "base/yaml.h"
#include "border/protocol.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "mesh/identity.h"
#include "row.h"
#include <stdlib.h>
#include <string.h>

static bool is_trust_domain(const char *s)
{
	struct identity id;
	struct err e;

	return !*s || !identity_set(&id, s, "ns", "sa", &e);
}

/* "host:port" or "[v6]:port"; the length of the host, 0 if it is neither. */
static size_t host_length(const char *address)
{
	const bool v6 = *address == '[';
	size_t n = v6 ? 1 + strspn(address + 1, "0123456789abcdefABCDEF:.")
		      : strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"0123456789.-_");
	size_t digits;
	long port;

	if (v6 && address[n++] != ']')
		return 0;
	if (n < (v6 ? 4 : 1) || n > TEXT_MAX || address[n] != ':')
		return 0;
	digits = strspn(address + n + 1, "0123456789");
	if (!digits || digits > 5 || address[n + 1 + digits])
		return 0;
	port = strtol(address + n + 1, NULL, 10);
	return port >= 1 && port <= 65535 ? n : 0;
}

/* The worker reads no file of the node: the broker follows it, for all workers. */
static bool is_system(const char *s)
{
	return !*s || !strcmp(s, "SYSTEM");
}

static bool is_address(const char *s)
{
	return host_length(s) > 0;
}

/* A control plane as it is read; its texts go over to struct istiod_options. */
struct plane {
	char *name, *address, *root, *server_name, *trust_domain, *cluster_id, *mesh_id;
	char *former_trust_domains, *former_cluster_ids, *former_mesh_ids; /* NULL: none */
	int64_t connections, opens_per_second, opens_burst, pod_opens_per_second, pod_opens_burst;
	int64_t unread_stream_s;
	int64_t hold_empty_push_s; /* 0 is a value: begins as -1 */
};
#define TEXT_ROW(...) CONFIG_TEXT(struct plane, __VA_ARGS__)
#define NUMBER_ROW(...) CONFIG_NUMBER(struct plane, __VA_ARGS__)

/* name, default, [check, what it must be] [least, most] */
static const struct config_row rows[] = {
    TEXT_ROW(name, NULL, identity_valid_ns, "a DNS label"),
    TEXT_ROW(address, NULL, is_address, "host:port"),
    TEXT_ROW(
	root, "", is_system, "SYSTEM; a file is named by agentd's flag --root-file INDEX=FILE"),
    TEXT_ROW(server_name, "", config_is_word, "a DNS name"),
    TEXT_ROW(trust_domain, "", is_trust_domain, "a trust domain"),
    TEXT_ROW(cluster_id, "Kubernetes", config_is_word, "one word"),
    TEXT_ROW(mesh_id, "", config_is_word, "one word"),
    NUMBER_ROW(connections, "2", 1, 16),
    NUMBER_ROW(opens_per_second, "20", 1, 1000),
    NUMBER_ROW(opens_burst, "5", 1, 1000),
    NUMBER_ROW(pod_opens_per_second, "1", 1, 1000),
    NUMBER_ROW(pod_opens_burst, "3", 1, 1000),
    NUMBER_ROW(unread_stream_s, "15", 1, 3600),
    NUMBER_ROW(hold_empty_push_s, "30", 0, 3600),
};
enum { ROWS = sizeof(rows) / sizeof(*rows), FORMER_MAX = 8 };

/* These may be a list, too: the name of now, then former ones. */
static const struct renamed {
	const char *name;
	size_t former;
} renamed[] = {
    {"trust_domain", offsetof(struct plane, former_trust_domains)},
    {"cluster_id", offsetof(struct plane, former_cluster_ids)},
    {"mesh_id", offsetof(struct plane, former_mesh_ids)},
};
enum { RENAMED = sizeof(renamed) / sizeof(*renamed) };

static char **former_of(struct plane *p, const char *key)
{
	for (unsigned i = 0; i < RENAMED; i++)
		if (!strcmp(renamed[i].name, key))
			return (char **)(void *)((char *)p + renamed[i].former);
	return NULL;
}

static void plane_free(struct plane *p)
{
	config_rows_free(rows, ROWS, p);
	for (unsigned i = 0; i < RENAMED; i++)
		free(*former_of(p, renamed[i].name));
}

/* The name the certificate must show: the host of the address, but for a port-forward
 * (istio-agent.md 0.9). */
static char *default_server_name(const char *address, const char *istio_namespace)
{
	size_t n = host_length(address);
	char *host = *address == '[' ? mem_printf("%.*s", (int)n - 2, address + 1)
				     : mem_printf("%.*s", (int)n, address);

	if (!strstr(host, "localhost"))
		return host;
	free(host);
	return mem_printf("istiod.%s.svc", istio_namespace);
}

static void set_default(char **field, char *value)
{
	free(*field);
	*field = value;
}

/* Whatever was left out.  Istio's charts take the trust domain for the mesh id, too. */
static int complete_plane(struct plane *p, const struct config *c, struct err *e)
{
	if (!p->name || !p->address)
		return err_set(e, ERR_INVALID, "%s is missing", p->name ? "address" : "name");
	for (unsigned i = 0; i < ROWS; i++) {
		void *field = (char *)p + rows[i].at;
		bool missing =
		    rows[i].kind == TEXT ? !*(char **)field : *(int64_t *)field < rows[i].min;

		if (missing && config_row_set(&rows[i], p, rows[i].start, e))
			return -1;
	}
	if (!*p->server_name)
		set_default(&p->server_name, default_server_name(p->address, c->istio_namespace));
	if (!*p->mesh_id) {
		set_default(&p->mesh_id, mem_strdup(p->trust_domain));
		set_default(&p->former_mesh_ids,
		    p->former_trust_domains ? mem_strdup(p->former_trust_domains) : NULL);
	}
	return 0;
}

/* A pod names its control plane by address, `agentctl` shows it by name. */
static int check_unique(const struct plane *p, const struct config *c, struct err *e)
{
	for (size_t i = 0; i < c->nplanes; i++) {
		if (!strcmp(c->planes[i].name, p->name))
			return config_refuse_value("name", p->name, "unique", e);
		if (!strcmp(c->planes[i].address, p->address))
			return config_refuse_value("address", p->address, "unique", e);
	}
	return 0;
}

/* Completes `p` and takes what it holds, or frees it. */
static int add_plane(struct config *c, struct plane *p, struct err *e)
{
	struct istiod_options *o;

	if (complete_plane(p, c, e) || check_unique(p, c, e)) {
		plane_free(p);
		return -1;
	}
	c->planes = mem_realloc(c->planes, (c->nplanes + 1) * sizeof(*c->planes));
	o = &c->planes[c->nplanes++];
	*o = (struct istiod_options){.name = p->name,
	    .address = p->address,
	    .root = p->root,
	    .server_name = p->server_name,
	    .trust_domain = p->trust_domain,
	    .cluster_id = p->cluster_id,
	    .mesh_id = p->mesh_id,
	    .former_trust_domains = p->former_trust_domains,
	    .former_cluster_ids = p->former_cluster_ids,
	    .former_mesh_ids = p->former_mesh_ids,
	    .connections = (unsigned)p->connections,
	    .opens_per_second = (unsigned)p->opens_per_second,
	    .opens_burst = (unsigned)p->opens_burst,
	    .pod_opens_per_second = (unsigned)p->pod_opens_per_second,
	    .pod_opens_burst = (unsigned)p->pod_opens_burst,
	    .unread_stream_s = (unsigned)p->unread_stream_s,
	    .hold_empty_push_s = (unsigned)p->hold_empty_push_s};
	return 0;
}

/* [new, old, ...]: each valid by the key's own rule, and a word of words.h. */
static int set_names(struct plane *p, const struct config_row *row, json_t *list, struct err *e)
{
	char **former = former_of(p, row->name);
	size_t i;
	json_t *v;

	if (!json_array_size(list) || json_array_size(list) > FORMER_MAX)
		return err_set(
		    e, ERR_INVALID, "%s: must have 1 to %d names", row->name, FORMER_MAX);
	json_array_foreach (list, i, v) {
		const char *name = json_string_value(v);
		char *before = *former;

		if (!name || !*name || strchr(name, ',') || !row->valid(name))
			return config_refuse_value(
			    row->name, name ? name : "", "names without commas", e);
		if (!i && config_row_set(row, p, name, e))
			return -1;
		if (!i)
			continue;
		*former = before ? mem_printf("%s,%s", before, name) : mem_strdup(name);
		free(before);
	}
	return 0;
}

static int set_plane_key(struct plane *p, const char *key, json_t *value, struct err *e)
{
	struct nearest n = {.wanted = key};
	char printable[80];

	for (unsigned i = 0; i < ROWS; i++) {
		nearest_consider(&n, rows[i].name);
		if (strcmp(rows[i].name, key) != 0)
			continue;
		if (json_is_array(value) && former_of(p, key))
			return set_names(p, &rows[i], value, e);
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "%s: must be one value", key);
		return config_row_set(&rows[i], p, json_string_value(value), e);
	}
	err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
	return err_set(e, ERR_INVALID, "%s: no such key; nearest: %s", printable, n.name);
}

static int read_plane(struct config_reader *r, json_t *v, struct err *e)
{
	struct plane p = {.hold_empty_push_s = -1};
	unsigned start = r->line;
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return err_set(e, ERR_INVALID, "must be a map with name and address");
	json_object_foreach (v, key, value) {
		r->line = yaml_doc_line(r->yaml, value);
		if (set_plane_key(&p, key, value, e)) {
			plane_free(&p);
			return -1;
		}
	}
	r->line = start;
	return add_plane(r->config, &p, e);
}

int config_planes_read(struct config_reader *r, json_t *list, struct err *e)
{
	size_t i;
	json_t *v;

	r->line = yaml_doc_line(r->yaml, list);
	if (!json_is_array(list) || !json_array_size(list))
		return err_set(e, ERR_INVALID, CONFIG_PLANES_KEY ": must be a list");
	if (json_array_size(list) > LINK_PLANES_MAX)
		return err_set(
		    e, ERR_INVALID, CONFIG_PLANES_KEY ": more than %d entries", LINK_PLANES_MAX);
	json_array_foreach (list, i, v) {
		r->line = yaml_doc_line(r->yaml, v);
		if (read_plane(r, v, e))
			return err_wrap(e, CONFIG_PLANES_KEY "[%zu]", i);
	}
	return 0;
}

/* As a fresh installation has it. */
int config_planes_default(struct config *c, struct err *e)
{
	struct plane p = {
	    .name = mem_strdup("istiod"),
	    .address = mem_printf("istiod.%s.svc:15012", c->istio_namespace),
	    .hold_empty_push_s = -1,
	};

	return add_plane(c, &p, e);
}

void config_planes_clear(struct config *c)
{
	for (size_t i = 0; i < c->nplanes; i++) {
		const struct istiod_options *o = &c->planes[i];

		plane_free(&(struct plane){.name = (char *)o->name,
		    .address = (char *)o->address,
		    .root = (char *)o->root,
		    .server_name = (char *)o->server_name,
		    .trust_domain = (char *)o->trust_domain,
		    .cluster_id = (char *)o->cluster_id,
		    .mesh_id = (char *)o->mesh_id,
		    .former_trust_domains = (char *)o->former_trust_domains,
		    .former_cluster_ids = (char *)o->former_cluster_ids,
		    .former_mesh_ids = (char *)o->former_mesh_ids});
	}
	free(c->planes);
}
