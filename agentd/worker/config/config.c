/* config.c - defaults, then the file, then the flags; each later one wins.
 *
 * config_table.c has one row per flat key, config_planes.c reads the list of control planes,
 * config_row.c turns a text into the value of a field.
 */
#include "config.h"
#include "common/err.h"
#include "common/mem.h"
#include "row.h"
#include "worker/base/yaml.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Flags of `agentd` itself, often looked for in the file. */
static const char *const broker_flags[] = {"run", "manifests", "config", "root_file", "crl_file",
    "cgroup_root", "worker_user", "max_pods"};

static const char *nearest_key(const char *wanted)
{
	struct config_nearest n = {.wanted = wanted};

	for (unsigned i = 0; i < config_nrows; i++)
		if (!config_rows[i].flag_only)
			config_consider(&n, config_rows[i].name);
	config_consider(&n, CONFIG_PLANES_KEY);
	return n.name;
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

static int read_key(struct config_reader *r, const char *key, json_t *value, struct err *e)
{
	r->line = yaml_doc_line(r->yaml, value);
	for (unsigned i = 0; i < config_nrows; i++) {
		if (strcmp(config_rows[i].name, key) != 0 || config_rows[i].flag_only)
			continue;
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "%s: must be one value", key);
		return config_row_set(&config_rows[i], r->config, json_string_value(value), e);
	}
	return refuse_key(key, e);
}

static int read_flat_keys(struct config_reader *r, json_t *root, struct err *e)
{
	const char *key;
	json_t *value;

	r->line = yaml_doc_line(r->yaml, root);
	if (!json_is_object(root))
		return err_set(e, ERR_INVALID, "not a map of keys");
	json_object_foreach (root, key, value)
		if (strcmp(key, CONFIG_PLANES_KEY) != 0 && read_key(r, key, value, e))
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

static const struct config_row *find_flag(const char *flag, size_t length, struct err *e)
{
	auto_free char *wanted = mem_printf("%.*s", (int)length, flag);
	auto_free char *nearest = NULL;
	unsigned best = UINT32_MAX;
	char printable[80];

	for (unsigned i = 0; i < config_nrows; i++) {
		auto_free char *own = flag_of(config_rows[i].name);
		unsigned d = config_distance(wanted, own);

		if (!strcmp(own, wanted))
			return &config_rows[i];
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
		const struct config_row *r = find_flag(argv[i], length < 128 ? length : 128, e);

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
		if (config_row_set(r, c, value, e))
			return -1;
	}
	return 0;
}

static void set_defaults(struct config *c)
{
	struct err never;
	char host[TEXT_MAX + 1] = "";

	for (unsigned i = 0; i < config_nrows; i++)
		config_row_set(&config_rows[i], c, config_rows[i].start, &never);
	if (gethostname(host, sizeof(host) - 1))
		return;
	free(c->node_name);
	c->node_name = mem_strdup(host);
}

static int check_together(const struct config *c, struct err *e)
{
	if (c->secret_ttl_min_s > c->secret_ttl_max_s)
		return err_set(e, ERR_INVALID, "secret_ttl_min_s is above secret_ttl_max_s");
	if (c->pod_memory_mib < 2 * c->pod_message_mib)
		return err_set(e, ERR_INVALID, "pod_memory_mib is below twice pod_message_mib");
	return 0;
}

static int read_all(struct config_reader *r, int argc, char **argv, struct err *e)
{
	json_t *root = yaml_doc_root(r->yaml);
	json_t *planes = json_object_get(root, CONFIG_PLANES_KEY);

	set_defaults(r->config);
	if (root && read_flat_keys(r, root, e))
		return -1;
	r->line = 0;
	if (read_flags(r->config, argc, argv, e) || check_together(r->config, e))
		return -1;
	return planes ? config_planes_read(r, planes, e) : config_planes_default(r->config, e);
}

int config_load(struct config *c, const char *file, const char *text, size_t len, int argc,
    char **argv, struct err *e)
{
	struct yaml_doc *y = yaml_doc_parse(text, len, e);
	struct config_reader r = {.config = c, .yaml = y};
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
	config_rows_free(config_rows, config_nrows, c);
	config_planes_clear(c);
	*c = (struct config){0};
}

void config_help(FILE *out)
{
	static const char *const kinds[] = {" TEXT", "", " N"};

	for (unsigned i = 0; i < config_nrows; i++) {
		auto_free char *flag = flag_of(config_rows[i].name);
		auto_free char *usage = mem_printf("%s%s", flag, kinds[config_rows[i].kind]);

		(void)fprintf(out, "  %-32s %s", usage, config_rows[i].help);
		if (config_rows[i].kind != BOOLEAN && *config_rows[i].start)
			(void)fprintf(out, " (default %s)", config_rows[i].start);
		(void)fputc('\n', out);
	}
}
