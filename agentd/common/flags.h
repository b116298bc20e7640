/* flags.h - every flag of agentd's command line and every flat key of agentd.yaml, in one
 * list.  The keys of a control plane are in worker/config/planes.c.
 *
 * agentd --help, the man pages, defaults and the hint for a misspelt name come from it.  A flag is
 * --name; a key of the file is the same name with '_' for '-'.  What a value must be and where it
 * goes is each program's own matter: broker/base/options.c and worker/config/table.c.
 */
#pragma once
#include <stddef.h>
#include <stdio.h>

struct err;

/* Of redirect_accelerate and three words of --redirect-allow: why they are refused
 * (ebpf-redirect.md 12). */
#define FLAGS_ACCELERATE_GONE "acceleration was tried, does not pay and is gone"

enum flag_whose {          /* bits */
	FLAG_BROKER = 1,   /* a flag only: the broker reads no file */
	FLAG_WORKER = 2,   /* a key, too; the broker passes the flag on */
	FLAG_BOTH = 1 | 2, /* the broker heeds it and passes it on */
};
enum flag_kind {
	FLAG_SWITCH,   /* --name */
	FLAG_BOOLEAN,  /* --name or --name=false */
	FLAG_TEXT,     /* --name=VALUE or --name VALUE */
	FLAG_NUMBER,   /* the same */
	FLAG_OPTIONAL, /* --name or --name=VALUE */
	FLAG_LIST,     /* a key only */
};

struct flag {
	const char *name;
	enum flag_whose whose;
	enum flag_kind kind;
	const char *value, *start; /* what --help calls its value; the default, NULL: none */
	const char *help;          /* NULL: for agentd's own use only */
};
extern const struct flag flags_list[];
extern const unsigned flags_count;

/* Of "--name" or "--name=value"; `value` is NULL without one.  NULL: there is no such flag. */
const struct flag *flags_of_argument(const char *argument, const char **value);
const struct flag *flags_of_key(const char *key); /* spelt as in the file */

/* Both -1, with the nearest name of the whole list. */
int flags_refuse_argument(const char *argument, struct err *e);
int flags_refuse_key(const char *key, struct err *e);

/* One line for each flag of these programs; the broker's own ones, or those that are keys. */
void flags_help(FILE *out, enum flag_whose whose);

/* The value of --log-json, before any other flag is looked at: 1 or 0; -1: not given. */
int flags_log_json(int argc, char **argv);
