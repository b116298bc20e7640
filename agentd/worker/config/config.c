/* config.c - defaults, then the file, then the flags; each later one wins.
 *
 * common/flags.c names every key and flag, table.c has one row per flat key, planes.c
 * reads the list of control planes, row.c turns a text into the value of a field.
 */
#include "config.h"
#include "base/yaml.h"
#include "common/err.h"
#include "common/flags.h"
#include "common/mem.h"
#include "row.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct config_row *row_of(const struct flag *f)
{
	for (unsigned i = 0; f && i < config_nrows; i++)
		if (flags_of_key(config_rows[i].name) == f)
			return &config_rows[i];
	return NULL;
}

static int read_key(struct config_reader *r, const char *key, json_t *value, struct err *e)
{
	const struct config_row *row = row_of(flags_of_key(key));

	r->line = yaml_doc_line(r->yaml, value);
	if (!row || row->flag_only)
		return flags_refuse_key(key, e);
	if (!json_is_string(value))
		return err_set(e, ERR_INVALID, "%s: must be one value", key);
	return config_row_set(row, r->config, json_string_value(value), e);
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

/* "--key=value", "--key value", or "--key" of a boolean. */
static int read_flags(struct config *c, int argc, char **argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		const char *value;
		const struct flag *f = flags_of_argument(argv[i], &value);
		const struct config_row *r = row_of(f);

		if (f && !r)
			return err_set(e, ERR_INVALID, "--%s is for the broker", f->name);
		if (!f)
			return flags_refuse_argument(argv[i], e);
		if (!value)
			value = r->kind == BOOLEAN ? "true" : argv[++i];
		if (i == argc)
			return err_set(e, ERR_INVALID, "--%s needs a value", f->name);
		if (config_row_set(r, c, value, e))
			return -1;
	}
	return 0;
}

static void set_defaults(struct config *c)
{
	struct err never;
	char host[TEXT_MAX + 1] = "";

	for (unsigned i = 0; i < flags_count; i++) {
		const struct config_row *r = row_of(&flags_list[i]);

		if (r && flags_list[i].start)
			config_row_set(r, c, flags_list[i].start, &never);
	}
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

int config_load(
    struct config *c, const struct config_file *file, int argc, char **argv, struct err *e)
{
	struct yaml_doc *y = yaml_doc_parse(file->text, file->size, e);
	struct config_reader r = {.config = c, .yaml = y};
	int rc;

	*c = (struct config){0};
	if (!y)
		return err_wrap(e, "%s", file->name);
	rc = read_all(&r, argc, argv, e);
	yaml_doc_free(&y);
	if (!rc)
		return 0;
	config_clear(c);
	return r.line ? err_wrap(e, "%s: line %u", file->name, r.line) : rc;
}

void config_clear(struct config *c)
{
	config_rows_free(config_rows, config_nrows, c);
	config_planes_clear(c);
	*c = (struct config){0};
}
