/* config_row.c - how a value gets from its text into its field. */
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

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Levenshtein's distance, of words no longer than our keys. */
unsigned config_distance(const char *a, const char *b)
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

void config_consider(struct config_nearest *n, const char *name)
{
	unsigned d = config_distance(n->wanted, name);

	if (!n->name || d < n->distance) {
		n->name = name;
		n->distance = d;
	}
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

static int set_text(const struct config_row *r, const char *value, char **field, struct err *e)
{
	if (r->valid && !r->valid(value))
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
