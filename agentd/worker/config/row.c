/* row.c - how a value gets from its text into its field. */
#include "row.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdlib.h>
#include <string.h>

bool config_is_word(const char *s)
{
	size_t n = strlen(s);

	if (n > TEXT_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return true;
}

int config_refuse_value(const char *name, const char *value, const char *must, struct err *e)
{
	char printable[80];

	err_printable(printable, sizeof(printable), value, (unsigned)strlen(value));
	return err_set(e, ERR_INVALID, "%s: \"%s\" must be %s", name, printable, must);
}

static int refuse_number(const struct config_row *r, const char *value, struct err *e)
{
	char must[64];

	(void)snprintf(
	    must, sizeof(must), "a number from %lld to %lld", (long long)r->min, (long long)r->max);
	return config_refuse_value(r->name, value, must, e);
}

static int read_number(const struct config_row *r, const char *value, int64_t *out, struct err *e)
{
	size_t digits = strspn(value, "0123456789");

	if (!digits || digits > 15 || value[digits])
		return refuse_number(r, value, e);
	*out = strtoll(value, NULL, 10);
	return *out < r->min || *out > r->max ? refuse_number(r, value, e) : 0;
}

/* In "a, b or c: why". */
static bool is_listed(const char *words, const char *value)
{
	size_t n;

	for (const char *at = words; *at && *at != ':'; at += n + strspn(at + n, ", ")) {
		n = strcspn(at, ", :");
		if (n == strlen(value) && !strncmp(at, value, n))
			return strcmp(value, "or") != 0;
	}
	return false;
}

static int set_text(const struct config_row *r, const char *value, char **field, struct err *e)
{
	if (r->valid ? !r->valid(value) : !is_listed(r->must, value))
		return config_refuse_value(r->name, value, r->must, e);
	free(*field);
	*field = mem_strdup(value);
	return 0;
}

int config_row_set(const struct config_row *r, void *base, const char *value, struct err *e)
{
	void *field = (char *)base + r->at;

	if (r->kind == NUMBER)
		return read_number(r, value, field, e);
	if (r->kind == TEXT)
		return set_text(r, value, field, e);
	*(bool *)field = !strcmp(value, "true");
	if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
		return config_refuse_value(r->name, value, "true or false", e);
	return 0;
}

void config_rows_free(const struct config_row *rows, unsigned n, void *base)
{
	for (unsigned i = 0; i < n; i++)
		if (rows[i].kind == TEXT)
			free(*(char **)((char *)base + rows[i].at));
}
