/* table.h - a table with columns as wide as their widest cell. */
#pragma once

struct table;

struct table *table_new(unsigned columns);
/* `columns` strings, then NULL; copied, and printable: a cell begins no line. */
void table_row(struct table *t, ...) __attribute__((sentinel));
void table_print_free(struct table **t);
