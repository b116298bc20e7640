/* row.h - one key of the configuration; only this folder includes it.
 *
 * A row says where its key goes, its kind and what it may be.  Key and field have the same name.
 * Defaults and help of the flat keys stand in common/flags.c.
 */
#pragma once
#include "config.h"
#include <stddef.h>

enum { DAY = 24 * 3600, YEAR = 365 * DAY, TEXT_MAX = 253 };

enum config_kind { TEXT, BOOLEAN, NUMBER };

struct config_row {
	const char *name;
	enum config_kind kind;
	size_t at;                   /* in the struct that is filled */
	const char *start;           /* of a plane's key; NULL: none, or common/flags.c has it */
	bool (*valid)(const char *); /* of a TEXT; NULL: it is one of the words in `must` */
	const char *must;            /* what it must be, for messages: "a, b or c", ": why" */
	int64_t min, max;            /* of a NUMBER */
	bool flag_only;
};

/* Of a struct that has the field. */
#define CONFIG_TEXT(type, field, start, valid, must)                                               \
	{                                                                                          \
#field, TEXT, offsetof(type, field), start, valid, must, 0, 0, false               \
	}
#define CONFIG_BOOLEAN(type, field)                                                                \
	{                                                                                          \
#field, BOOLEAN, offsetof(type, field), NULL, NULL, NULL, 0, 0, false              \
	}
#define CONFIG_NUMBER(type, field, start, min, max)                                                \
	{                                                                                          \
#field, NUMBER, offsetof(type, field), start, NULL, NULL, min, max, false          \
	}

extern const struct config_row config_rows[]; /* the flat keys */
extern const unsigned config_nrows;

/* Fills the field of `base`; an old text is freed. */
int config_row_set(const struct config_row *r, void *base, const char *value, struct err *e);
void config_rows_free(const struct config_row *rows, unsigned n, void *base); /* the texts */
int config_refuse_value(const char *name, const char *value, const char *must, struct err *e);

bool config_is_word(const char *s); /* nothing that a shell, a terminal or a header could mind */

struct config_reader {
	struct config *config;
	const struct yaml_doc *yaml;
	unsigned line; /* of the value that is being read */
};
#define CONFIG_PLANES_KEY "control_planes"
int config_planes_read(struct config_reader *r, json_t *list, struct err *e);
int config_planes_default(struct config *c, struct err *e); /* Istio's own */
void config_planes_clear(struct config *c);
