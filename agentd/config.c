/* config.c - defaults, then the file, then the flags; each later one wins.
 *
 * One row per flat key says everything about it: where it goes, its kind, its default, what it may
 * be and its line of --help.  The control planes have a table of their own.  What only the broker
 * needs exists only as a flag of agentd, because the broker reads no YAML (architecture decision
 * 2).
 */
#include "config.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "priv/protocol.h"
#include "security/identity.h"
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { DAY = 24 * 3600, YEAR = 365 * DAY, TEXT_MAX = 253 };

enum kind { TEXT, BOOLEAN, NUMBER };

struct row {
	const char *name;
	enum kind kind;
	size_t at; /* in struct config */
	const char *start, *help;
	bool (*valid)(const char *); /* of a TEXT */
	const char *must;            /* what it must be, for messages */
	int64_t min, max;            /* of a NUMBER */
	bool flag_only;
};

/* One word without anything that a shell, a terminal or a header could mind. */
static bool is_word(const char *s)
{
	size_t n = strlen(s);

	if (n > TEXT_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return true;
}

static bool is_name(const char *s)
{
	return *s && is_word(s);
}

static bool is_family(const char *s)
{
	return !strcmp(s, "ipv4") || !strcmp(s, "ipv6");
}

static bool is_scope(const char *s)
{
	return !strcmp(s, "service-account") || !strcmp(s, "pod");
}

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

static bool is_address(const char *s)
{
	return host_length(s) > 0;
}

#define AT(field) offsetof(struct config, field)
static const struct row rows[] = {
    {"log_level", TEXT, AT(log_level), "info", "levels: info, or sds:debug,default:warn", is_name,
	"levels such as info or default:warn,xds:debug", 0, 0, false},
    {"log_json", BOOLEAN, AT(log_json), "false", "log JSON instead of logfmt", NULL, NULL, 0, 0,
	false},
    {"node_name", TEXT, AT(node_name), "", "name of this node (default: the host's name)", is_word,
	"one word", 0, 0, false},
    {"istio_namespace", TEXT, AT(istio_namespace), "istio-system", "namespace istiod runs in",
	identity_valid_ns, "a DNS label", 0, 0, false},
    {"cluster_domain", TEXT, AT(cluster_domain), "cluster.local", "DNS domain of the cluster",
	identity_valid_sa, "a DNS name", 0, 0, false},
    {"ip_family", TEXT, AT(ip_family), "ipv4",
	"ipv4 or ipv6: of a pod whose addresses are not known yet", is_family, "ipv4 or ipv6", 0, 0,
	false},
    {"secret_ttl_min_s", NUMBER, AT(secret_ttl_min_s), "3600", "shortest SECRET_TTL a pod may ask",
	NULL, NULL, 1, YEAR, false},
    {"secret_ttl_max_s", NUMBER, AT(secret_ttl_max_s), "86400", "longest SECRET_TTL a pod may ask",
	NULL, NULL, 1, YEAR, false},
    {"certificate_reissue_min_s", NUMBER, AT(certificate_reissue_min_s), "300",
	"pause between two certificates of one service account", NULL, NULL, 1, DAY, false},
    {"certificate_linger_s", NUMBER, AT(certificate_linger_s), "300",
	"how long a certificate is kept after its last pod", NULL, NULL, 0, DAY, false},
    {"pcds", BOOLEAN, AT(pcds), "false",
	"take further trust anchors from istiod (its ISTIO_MULTIROOT_MESH)", NULL, NULL, 0, 0,
	false},
    {"certificate_scope", TEXT, AT(certificate_scope), "service-account",
	"who shares a certificate; pod: nobody, and no pod can ask otherwise", is_scope,
	"service-account or pod", 0, 0, false},
    {"csr_per_second", NUMBER, AT(csr_per_second), "10",
	"certificates asked of one control plane, with bursts of twice as many", NULL, NULL, 1, 100,
	false},
    {"check", BOOLEAN, AT(check), "false", "read the configuration, say so, end", NULL, NULL, 0, 0,
	true},
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

static const char planes_key[] = "control_planes";

/* Flags of `agentd` itself, often looked for in the file. */
static const char *const broker_flags[] = {"run", "manifests", "config", "root_file", "crl_file",
    "cgroup_root", "worker_user", "max_pods"};

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Levenshtein's distance, of words no longer than our keys. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64], n = (unsigned)strnlen(b, 63);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; i < 64 && a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[n];
}

struct nearest {
	const char *wanted, *name;
	unsigned distance;
};

static void consider(struct nearest *n, const char *name)
{
	unsigned d = distance(n->wanted, name);

	if (!n->name || d < n->distance) {
		n->name = name;
		n->distance = d;
	}
}

static const char *nearest_key(const char *wanted)
{
	struct nearest n = {.wanted = wanted};

	for (unsigned i = 0; i < ROWS; i++)
		if (!rows[i].flag_only)
			consider(&n, rows[i].name);
	consider(&n, planes_key);
	return n.name;
}

static int refuse_value(const char *name, const char *value, const char *must, struct err *e)
{
	char printable[80];

	err_printable(printable, sizeof(printable), value, (unsigned)strlen(value));
	return err_set(e, ERR_INVALID, "%s: \"%s\" must be %s", name, printable, must);
}

static int refuse_number(const struct row *r, const char *value, struct err *e)
{
	char must[64];

	(void)snprintf(
	    must, sizeof(must), "a number from %lld to %lld", (long long)r->min, (long long)r->max);
	return refuse_value(r->name, value, must, e);
}

static int read_number(const struct row *r, const char *value, int64_t *out, struct err *e)
{
	size_t digits = strspn(value, "0123456789");

	if (!digits || digits > 15 || value[digits])
		return refuse_number(r, value, e);
	*out = strtoll(value, NULL, 10);
	return *out < r->min || *out > r->max ? refuse_number(r, value, e) : 0;
}

static int set_text(const struct row *r, const char *value, char **field, struct err *e)
{
	if (r->valid && !r->valid(value))
		return refuse_value(r->name, value, r->must, e);
	free(*field);
	*field = mem_strdup(value);
	return 0;
}

static int set(const struct row *r, void *base, const char *value, struct err *e)
{
	void *field = (char *)base + r->at;

	if (r->kind == NUMBER)
		return read_number(r, value, field, e);
	if (r->kind == TEXT)
		return set_text(r, value, field, e);
	*(bool *)field = !strcmp(value, "true");
	if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
		return refuse_value(r->name, value, "true or false", e);
	return 0;
}

/* A control plane as it is read; its texts go over to struct istiod_options. */
struct plane {
	char *name, *address, *root, *server_name, *trust_domain, *cluster_id, *mesh_id;
	int64_t connections, opens_per_second, opens_burst, pod_opens_per_second, pod_opens_burst;
	int64_t unread_stream_s;
	int64_t hold_empty_push_s; /* 0 is a value: begins as -1 */
};

#undef AT
#define AT(field) offsetof(struct plane, field)
static const struct row plane_rows[] = {
    {"name", TEXT, AT(name), NULL, NULL, identity_valid_ns, "a DNS label", 0, 0, false},
    {"address", TEXT, AT(address), NULL, NULL, is_address, "host:port", 0, 0, false},
    {"root", TEXT, AT(root), "", NULL, is_word, "SYSTEM or a file", 0, 0, false},
    {"server_name", TEXT, AT(server_name), "", NULL, is_word, "a DNS name", 0, 0, false},
    {"trust_domain", TEXT, AT(trust_domain), "", NULL, is_trust_domain, "a trust domain", 0, 0,
	false},
    {"cluster_id", TEXT, AT(cluster_id), "Kubernetes", NULL, is_word, "one word", 0, 0, false},
    {"mesh_id", TEXT, AT(mesh_id), "", NULL, is_word, "one word", 0, 0, false},
    {"connections", NUMBER, AT(connections), "2", NULL, NULL, NULL, 1, 16, false},
    {"opens_per_second", NUMBER, AT(opens_per_second), "20", NULL, NULL, NULL, 1, 1000, false},
    {"opens_burst", NUMBER, AT(opens_burst), "5", NULL, NULL, NULL, 1, 1000, false},
    {"pod_opens_per_second", NUMBER, AT(pod_opens_per_second), "1", NULL, NULL, NULL, 1, 1000,
	false},
    {"pod_opens_burst", NUMBER, AT(pod_opens_burst), "3", NULL, NULL, NULL, 1, 1000, false},
    {"unread_stream_s", NUMBER, AT(unread_stream_s), "15", NULL, NULL, NULL, 1, 3600, false},
    {"hold_empty_push_s", NUMBER, AT(hold_empty_push_s), "30", NULL, NULL, NULL, 0, 3600, false},
};
enum { PLANE_ROWS = sizeof(plane_rows) / sizeof(*plane_rows) };
#undef AT

static void plane_free(struct plane *p)
{
	for (unsigned i = 0; i < PLANE_ROWS; i++)
		if (plane_rows[i].kind == TEXT)
			free(*(char **)((char *)p + plane_rows[i].at));
}

/* The name the certificate must show: the host of the address, but for a port-forward
 * (istio-agent.md 0 item 9). */
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
	for (unsigned i = 0; i < PLANE_ROWS; i++) {
		void *field = (char *)p + plane_rows[i].at;
		bool missing = plane_rows[i].kind == TEXT ? !*(char **)field
							  : *(int64_t *)field < plane_rows[i].min;

		if (missing && set(&plane_rows[i], p, plane_rows[i].start, e))
			return -1;
	}
	if (!*p->server_name)
		set_default(&p->server_name, default_server_name(p->address, c->istio_namespace));
	if (!*p->mesh_id)
		set_default(&p->mesh_id, mem_strdup(p->trust_domain));
	return 0;
}

/* A pod names its control plane by address, `agentctl` shows it by name. */
static int check_unique(const struct plane *p, const struct config *c, struct err *e)
{
	for (size_t i = 0; i < c->nplanes; i++) {
		if (!strcmp(c->planes[i].name, p->name))
			return refuse_value("name", p->name, "unique", e);
		if (!strcmp(c->planes[i].address, p->address))
			return refuse_value("address", p->address, "unique", e);
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
	    .connections = (unsigned)p->connections,
	    .opens_per_second = (unsigned)p->opens_per_second,
	    .opens_burst = (unsigned)p->opens_burst,
	    .pod_opens_per_second = (unsigned)p->pod_opens_per_second,
	    .pod_opens_burst = (unsigned)p->pod_opens_burst,
	    .unread_stream_s = (unsigned)p->unread_stream_s,
	    .hold_empty_push_s = (unsigned)p->hold_empty_push_s};
	return 0;
}

static int set_plane_key(struct plane *p, const char *key, json_t *value, struct err *e)
{
	struct nearest n = {.wanted = key};
	char printable[80];

	for (unsigned i = 0; i < PLANE_ROWS; i++) {
		consider(&n, plane_rows[i].name);
		if (strcmp(plane_rows[i].name, key) != 0)
			continue;
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "%s: must be one value", key);
		return set(&plane_rows[i], p, json_string_value(value), e);
	}
	err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
	return err_set(e, ERR_INVALID, "%s: no such key; nearest: %s", printable, n.name);
}

struct reader {
	struct config *config;
	const struct yaml_doc *yaml;
	unsigned line; /* of the value that is being read */
};

static int read_plane(struct reader *r, json_t *v, struct err *e)
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

static int read_planes(struct reader *r, json_t *list, struct err *e)
{
	size_t i;
	json_t *v;

	r->line = yaml_doc_line(r->yaml, list);
	if (!json_is_array(list) || !json_array_size(list))
		return err_set(e, ERR_INVALID, "control_planes: must be a list");
	if (json_array_size(list) > PRIV_PLANES_MAX)
		return err_set(
		    e, ERR_INVALID, "control_planes: more than %d entries", PRIV_PLANES_MAX);
	json_array_foreach (list, i, v) {
		r->line = yaml_doc_line(r->yaml, v);
		if (read_plane(r, v, e))
			return err_wrap(e, "control_planes[%zu]", i);
	}
	return 0;
}

static int refuse_key(const char *key, struct err *e)
{
	char printable[80];

	for (unsigned i = 0; i < sizeof(broker_flags) / sizeof(*broker_flags); i++)
		if (!strcmp(broker_flags[i], key))
			return err_set(e, ERR_INVALID,
			    "%s: belongs to the broker: give it as a flag of agentd", key);
	err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
	return err_set(e, ERR_INVALID, "%s: no such key; nearest: %s", printable, nearest_key(key));
}

static int read_key(struct reader *r, const char *key, json_t *value, struct err *e)
{
	r->line = yaml_doc_line(r->yaml, value);
	for (unsigned i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, key) != 0 || rows[i].flag_only)
			continue;
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "%s: must be one value", key);
		return set(&rows[i], r->config, json_string_value(value), e);
	}
	return refuse_key(key, e);
}

static int read_flat_keys(struct reader *r, json_t *root, struct err *e)
{
	const char *key;
	json_t *value;

	r->line = yaml_doc_line(r->yaml, root);
	if (!json_is_object(root))
		return err_set(e, ERR_INVALID, "not a map of keys");
	json_object_foreach (root, key, value)
		if (strcmp(key, planes_key) != 0 && read_key(r, key, value, e))
			return -1;
	return 0;
}

/* "log_level" as "--log-level". */
static char *flag_of(const char *key)
{
	char *flag = mem_printf("--%s", key);

	for (char *p = flag; *p; p++)
		*p = *p == '_' ? '-' : *p;
	return flag;
}

static const struct row *find_flag(const char *flag, size_t length, struct err *e)
{
	auto_free char *wanted = mem_printf("%.*s", (int)length, flag);
	auto_free char *nearest = NULL;
	unsigned best = UINT32_MAX;
	char printable[80];

	for (unsigned i = 0; i < ROWS; i++) {
		auto_free char *own = flag_of(rows[i].name);
		unsigned d = distance(wanted, own);

		if (!strcmp(own, wanted))
			return &rows[i];
		if (d < best) {
			best = d;
			free(nearest);
			nearest = take(own);
		}
	}
	err_printable(printable, sizeof(printable), wanted, (unsigned)strlen(wanted));
	err_set(e, ERR_INVALID, "%s: no such flag; nearest: %s", printable, nearest);
	return NULL;
}

/* "--key=value", "--key value", or "--key" of a boolean. */
static int read_flags(struct config *c, int argc, char **argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		const char *value = NULL;
		size_t length = strcspn(argv[i], "=");
		const struct row *r = find_flag(argv[i], length < 128 ? length : 128, e);

		if (!r)
			return -1;
		if (argv[i][length])
			value = argv[i] + length + 1;
		else if (r->kind == BOOLEAN)
			value = "true";
		else if (i + 1 < argc)
			value = argv[++i];
		if (!value)
			return err_set(e, ERR_INVALID, "%s wants a value", argv[i]);
		if (set(r, c, value, e))
			return -1;
	}
	return 0;
}

static void set_defaults(struct config *c)
{
	struct err never;
	char host[TEXT_MAX + 1] = "";

	for (unsigned i = 0; i < ROWS; i++)
		set(&rows[i], c, rows[i].start, &never);
	if (!gethostname(host, sizeof(host) - 1))
		set_default(&c->node_name, mem_strdup(host));
}

static int check_together(const struct config *c, struct err *e)
{
	if (c->secret_ttl_min_s > c->secret_ttl_max_s)
		return err_set(e, ERR_INVALID, "secret_ttl_min_s is above secret_ttl_max_s");
	return 0;
}

/* Istio's own, as a fresh installation has it. */
static int add_default_plane(struct config *c, struct err *e)
{
	struct plane p = {
	    .name = mem_strdup("istiod"),
	    .address = mem_printf("istiod.%s.svc:15012", c->istio_namespace),
	    .hold_empty_push_s = -1,
	};

	return add_plane(c, &p, e);
}

static int read_all(struct reader *r, int argc, char **argv, struct err *e)
{
	json_t *root = yaml_doc_root(r->yaml);
	json_t *planes = json_object_get(root, planes_key);

	set_defaults(r->config);
	if (root && read_flat_keys(r, root, e))
		return -1;
	r->line = 0;
	if (read_flags(r->config, argc, argv, e) || check_together(r->config, e))
		return -1;
	return planes ? read_planes(r, planes, e) : add_default_plane(r->config, e);
}

int config_load(struct config *c, const char *file, const char *text, size_t len, int argc,
    char **argv, struct err *e)
{
	struct yaml_doc *y = yaml_doc_parse(text, len, e);
	struct reader r = {.config = c, .yaml = y};
	int rc;

	*c = (struct config){0};
	if (!y)
		return err_wrap(e, "%s", file);
	rc = read_all(&r, argc, argv, e);
	yaml_doc_free(&y);
	if (!rc)
		return 0;
	config_clear(c);
	return r.line ? err_wrap(e, "%s: line %u", file, r.line) : rc;
}

void config_clear(struct config *c)
{
	for (unsigned i = 0; i < ROWS; i++)
		if (rows[i].kind == TEXT)
			free(*(char **)((char *)c + rows[i].at));
	for (size_t i = 0; i < c->nplanes; i++) {
		const struct istiod_options *o = &c->planes[i];

		plane_free(&(struct plane){.name = (char *)o->name,
		    .address = (char *)o->address,
		    .root = (char *)o->root,
		    .server_name = (char *)o->server_name,
		    .trust_domain = (char *)o->trust_domain,
		    .cluster_id = (char *)o->cluster_id,
		    .mesh_id = (char *)o->mesh_id});
	}
	free(c->planes);
	*c = (struct config){0};
}

void config_help(FILE *out)
{
	static const char *const kinds[] = {" TEXT", "", " N"};

	for (unsigned i = 0; i < ROWS; i++) {
		auto_free char *flag = flag_of(rows[i].name);
		auto_free char *usage = mem_printf("%s%s", flag, kinds[rows[i].kind]);

		(void)fprintf(out, "  %-32s %s", usage, rows[i].help);
		if (rows[i].kind != BOOLEAN && *rows[i].start)
			(void)fprintf(out, " (default %s)", rows[i].start);
		(void)fputc('\n', out);
	}
}
