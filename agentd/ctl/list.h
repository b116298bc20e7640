/* list.h - the commands that list things of one kind: all of them, or those of one name.
 *
 * What is listed is an array in the answer of a page.  A thing with a problem makes the exit status
 * CTL_PROBLEM, and so does a name that nothing has.
 */
#pragma once
#include "command.h"
#include <jansson.h>

struct ctl_list {
	const char *noun; /* that lists them, for errors */
	const char *page; /* "/certs" */
	const char *key;  /* of the array in its answer */
	bool (*is_named)(const json_t *thing, const char *name);
	bool (*has_problem)(const json_t *thing);
	bool (*answer_has_problem)(const json_t *answer); /* beside the list; NULL: never */
	void (*print)(const json_t *answer); /* as a table; the list has what is to be shown */
	bool tree;                           /* what is named is shown as a tree instead */
};

/* The whole command; the name is the first word. */
int ctl_list(const struct ctl *c, const struct ctl_list *l);

/* Its first half: the answer, with only what has that name in its list (NULL: with all).  NULL
 * after saying on stderr why there is no answer; `*status` is the exit status so far. */
json_t *ctl_list_fetch(
    const struct ctl *c, const struct ctl_list *l, const char *name, int *status);

/* "web-0", "demo/web-0" or the uid of {pod, uid}. */
bool ctl_list_is_pod(const json_t *thing, const char *name);
bool ctl_list_says_why_not(const json_t *thing); /* it has a "why_not" */
