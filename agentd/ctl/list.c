/* list.c - a page is asked for -> what is not named is taken out -> what is left, of one thing more
 * than the page has, is looked at for problems, and printed.
 */
#include "list.h"
#include "request.h"
#include "show.h"
#include <stdio.h>
#include <string.h>

bool ctl_list_is_pod(const json_t *thing, const char *name)
{
	const char *label = ctl_string(thing, "pod"), *slash = strchr(label, '/');

	return !strcmp(label, name) || (slash && !strcmp(slash + 1, name)) ||
	       (*name && !strcmp(ctl_string(thing, "uid"), name));
}

bool ctl_list_says_why_not(const json_t *thing)
{
	return *ctl_string(thing, "why_not");
}

/* Leaves what is named; the exit status. */
static int narrow(json_t *list, const struct ctl_list *l, const char *name)
{
	if (!json_is_array(list)) {
		fprintf(
		    stderr, "agentctl: no %s in the answer: another version of agentd?\n", l->noun);
		return CTL_PROBLEM;
	}
	if (!name)
		return CTL_OK;
	for (size_t i = json_array_size(list); i-- > 0;)
		if (!l->is_named(json_array_get(list, i), name))
			json_array_remove(list, i);
	if (json_array_size(list))
		return CTL_OK;
	fprintf(stderr, "agentctl: %s: no such name (agentctl %s lists them)\n", name, l->noun);
	return CTL_NOT_FOUND;
}

json_t *ctl_list_fetch(const struct ctl *c, const struct ctl_list *l, const char *name, int *status)
{
	json_t *answer = ctl_request(c, "GET", l->page, status);

	if (answer)
		*status = narrow(json_object_get(answer, l->key), l, name);
	return answer;
}

static bool has_problem(const struct ctl_list *l, const json_t *answer, const char *name)
{
	const json_t *thing;
	size_t i;

	json_array_foreach (json_object_get(answer, l->key), i, thing)
		if (l->has_problem(thing))
			return true;
	return !name && l->answer_has_problem && l->answer_has_problem(answer);
}

static void print_each(const struct ctl_list *l, const json_t *list)
{
	const json_t *thing;
	size_t i;

	json_array_foreach (list, i, thing) {
		if (i)
			putchar('\n');
		l->print_one(thing);
	}
}

int ctl_list(const struct ctl *c, const struct ctl_list *l)
{
	const char *name = c->words[0];
	int status;
	json_t *answer = ctl_list_fetch(c, l, name, &status);

	if (!answer)
		return status;
	if (name && l->look && json_array_size(json_object_get(answer, l->key)) == 1)
		l->look(c, json_array_get(json_object_get(answer, l->key), 0));
	if (has_problem(l, answer, name))
		status = CTL_PROBLEM;
	if (c->json)
		ctl_print_answer(c, answer);
	else if (name && l->print_one)
		print_each(l, json_object_get(answer, l->key));
	else if (status != CTL_NOT_FOUND)
		l->print(answer);
	json_decref(answer);
	return status;
}
