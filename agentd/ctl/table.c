/* table.c - rows are kept until the widths are known. */
#include "table.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct table {
	unsigned columns;
	size_t rows;
	char **cells; /* rows * columns */
};

struct table *table_new(unsigned columns)
{
	struct table *t = mem_zalloc(sizeof(*t));

	t->columns = columns;
	return t;
}

void table_row(struct table *t, ...)
{
	va_list ap;

	t->cells = mem_realloc(t->cells, (t->rows + 1) * t->columns * sizeof(*t->cells));
	va_start(ap, t);
	for (unsigned i = 0; i < t->columns; i++) {
		const char *text = va_arg(ap, const char *);
		const unsigned size = (unsigned)strlen(text) + 1;

		t->cells[t->rows * t->columns + i] =
		    err_printable(mem_zalloc(size), size, text, size - 1);
	}
	va_end(ap);
	t->rows++;
}

static int width_of(const struct table *t, unsigned column)
{
	size_t width = 0;

	for (size_t r = 0; r < t->rows; r++) {
		size_t len = strlen(t->cells[r * t->columns + column]);

		width = len > width ? len : width;
	}
	return (int)width;
}

static void print_cell(const char *text, int width, bool last)
{
	if (last)
		printf("%s\n", text);
	else
		printf("%-*s  ", width, text);
}

void table_print_free(struct table **table)
{
	struct table *t = take(*table);
	auto_free int *widths = mem_zalloc(t->columns * sizeof(*widths));

	for (unsigned i = 0; i + 1 < t->columns; i++)
		widths[i] = width_of(t, i);
	for (size_t r = 0; r < t->rows; r++)
		for (unsigned i = 0; i < t->columns; i++)
			print_cell(t->cells[r * t->columns + i], widths[i], i + 1 == t->columns);
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}
