/* ctl.h - what the sub-commands of agentctl share: options, one request, tables.
 *
 * Exit status of every command: 0 fine, 1 a problem was found (and printed), 2 usage, 3 the agent
 * cannot be reached.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

enum { CTL_OK, CTL_PROBLEM, CTL_USAGE, CTL_UNREACHABLE };

enum { CTL_WORDS_MAX = 3 };

struct ctl {
	const char *run;                  /* directory of admin.sock */
	const char *name;                 /* the NAME after the noun, or NULL */
	bool json;                        /* -o json */
	bool deps;                        /* --deps */
	const char *words[CTL_WORDS_MAX]; /* what follows a NAME that is a verb, then NULL */
	struct {
		const char *pod, *uid, *gid; /* NULL: not given */
		bool udp;
	} explain; /* --pod and so on */
};

/* One request to the admin socket; NULL after saying on stderr why not (`*status` is then set).
 * The answer is an object; unless c->json its strings and keys are printable ASCII. */
json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status);

/* The same for an answer without an end, one object in each line: prints each with `print`, until
 * the answer ends; the exit status. */
int ctl_stream(const struct ctl *c, const char *target,
    void (*print)(const struct ctl *c, const json_t *line));

/* The string at `key`, or "". */
const char *ctl_string(const json_t *object, const char *key);
char *ctl_count(const json_t *object, const char *key); /* as text, the caller's */
bool ctl_any_says_why_not(const json_t *list);          /* one of them has a "why_not" */
typedef bool (*ctl_is_named)(const json_t *thing, const char *name);
/* Leaves in the list of an answer what c->name names (all without a name): CTL_OK, or CTL_PROBLEM
 * after saying on stderr that there is none. */
int ctl_select(const struct ctl *c, json_t *list, const char *noun, ctl_is_named is_named);
void ctl_print_json(const json_t *value);
/* An object or array, indented, "key: value" a line: for the detail of one thing. */
void ctl_print_tree(const json_t *value, int indent);

/* A table with columns as wide as their widest cell. */
struct table;
struct table *table_new(unsigned columns);
void table_row(struct table *t, ...)
    __attribute__((sentinel)); /* `columns` strings, then NULL; copied */
void table_print_free(struct table **t);

int cmd_status(const struct ctl *c);
int cmd_ready(const struct ctl *c);
int cmd_pods(const struct ctl *c);
int cmd_certs(const struct ctl *c);
int cmd_xds(const struct ctl *c);
int cmd_log(const struct ctl *c);
int cmd_redirect(const struct ctl *c);
int cmd_dns(const struct ctl *c);
int cmd_version(const struct ctl *c);
