/* list.h - the commands that list things of one kind: all of them, or those of one name.
 *
 * The answer of a page holds the things in an array.  The exit status is CTL_PROBLEM if a thing has
 * a problem, CTL_NOT_FOUND if nothing has the name.
 */
#pragma once
#include "command.h"
#include <jansson.h>

struct ctl_list {
	const char *noun; /* that lists them, for errors */
	const char *page; /* "/certs" */
	const char *key;  /* of the array in its answer */
	bool (*is_named)(const json_t *thing, const char *name);
	/* The only one of the name is looked at more closely; NULL: the page has it all. */
	void (*look)(const struct ctl *c, json_t *thing);
	bool (*has_problem)(const json_t *thing);
	bool (*answer_has_problem)(const json_t *answer); /* beside the list; NULL: never */
	void (*print)(const json_t *answer);    /* as a table, of the things that it lists */
	void (*print_one)(const json_t *thing); /* a named one, instead; NULL: as the others */
};

/* The whole command; the name is the first word. */
int ctl_list(const struct ctl *c, const struct ctl_list *l);

/* Its first half: the answer, its list cut to the things of that name (NULL: to all).  On failure
 * it prints the reason to stderr and returns NULL.  `*status` is the exit status so far. */
json_t *ctl_list_fetch(
    const struct ctl *c, const struct ctl_list *l, const char *name, int *status);

/* "web-0", "demo/web-0" or the uid of {pod, uid}. */
bool ctl_list_is_pod(const json_t *thing, const char *name);
bool ctl_list_says_why_not(const json_t *thing); /* it has a "why_not" */
