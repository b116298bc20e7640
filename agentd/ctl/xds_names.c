/* xds_names.c - each list of each part of the dump that holds what was pushed -> its entries.
 *
 * A listener's entry has the listener's states in it; of all others the state is the list's.  What
 * Envoy refused of a whole update is there once more, in an entry without a name.
 */
#include "xds_names.h"
#include "common/err.h"
#include "common/mem.h"
#include "envoy_lists.h"
#include "show.h"
#include "table.h"
#include <string.h>

struct list {
	const char *key, *type, *state;
	const char *inner; /* the resource in an entry; NULL: the entry has the name itself */
	const char *name;
};

static const struct list lists[] = {
    {"dynamic_active_clusters", "Cluster", "active", "cluster", "name"},
    {"dynamic_warming_clusters", "Cluster", "warming", "cluster", "name"},
    {"dynamic_endpoint_configs", "ClusterLoadAssignment", "active", "endpoint_config",
	"cluster_name"},
    {"dynamic_listeners", "Listener", "", NULL, "name"},
    {"dynamic_route_configs", "RouteConfiguration", "active", "route_config", "name"},
    {"dynamic_scoped_route_configs", "ScopedRouteConfiguration", "active", NULL, "name"},
    {"dynamic_active_secrets", "Secret", "active", NULL, "name"},
    {"dynamic_warming_secrets", "Secret", "warming", NULL, "name"},
    {"ecds_filters", "TypedExtensionConfig", "active", "ecds_filter", "name"},
};

/* Of a listener: the first of its states that is there. */
static const json_t *state_of_listener(const json_t *entry, const char **state)
{
	static const char *const states[][2] = {{"active_state", "active"},
	    {"warming_state", "warming"}, {"draining_state", "draining"}};

	for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
		const json_t *found = json_object_get(entry, states[i][0]);

		*state = states[i][1];
		if (found)
			return found;
	}
	*state = "";
	return NULL;
}

static const char *name_of(const struct list *l, const json_t *entry)
{
	const json_t *named = l->inner ? json_object_get(entry, l->inner) : entry;
	const json_t *failed =
	    json_object_get(json_object_get(entry, "error_state"), "failed_configuration");
	const char *name = ctl_string(named, l->name);

	return *name ? name : ctl_string(failed, l->name);
}

enum { LISTS = sizeof(lists) / sizeof(*lists) };

struct found {
	json_t *names, *refused; /* those that were, a set */
	size_t left;             /* so many more may come */
	bool more;
};

/* True: it was not there yet. */
static bool note(json_t *seen, const char *type, const char *name)
{
	auto_free char *key = mem_printf("%s/%s", type, name);

	return !json_object_get(seen, key) && !json_object_set_new(seen, key, json_true());
}

static json_t *shown(const json_t *object, const char *key)
{
	return ctl_printable_string(ctl_string(object, key));
}

static void add(struct found *f, const struct list *l, const json_t *entry)
{
	const json_t *error = json_object_get(entry, "error_state"), *versioned = entry;
	const char *state = l->state, *name = name_of(l, entry);

	if (!*state)
		versioned = state_of_listener(entry, &state);
	if (json_is_object(error) && !note(f->refused, l->type, name))
		return;
	if (f->left)
		json_array_append_new(f->names,
		    json_pack("{s:s, s:o, s:s, s:o, s:o}", "type", l->type, "name",
			ctl_printable_string(name), "state",
			json_is_object(error) ? "refused" : state, "version",
			shown(versioned, "version_info"), "why", shown(error, "details")));
	f->more = !f->left;
	f->left -= f->left > 0;
}

static void take_entry(void *ctx, const char *list, const json_t *entry)
{
	const struct list *l = lists;

	while (strcmp(l->key, list) != 0)
		l++;
	add(ctx, l, entry);
}

json_t *xds_names_of(const char *dump, size_t len, struct err *e)
{
	static const char *const keep[] = {"cluster", "endpoint_config", "route_config",
	    "ecds_filter", "name", "cluster_name", "error_state", "failed_configuration", "details",
	    "version_info", "active_state", "warming_state", "draining_state", NULL};
	const char *keys[LISTS + 1] = {NULL};
	struct found f = {json_array(), json_object(), envoy_lists_most(len), false};

	for (unsigned i = 0; i < LISTS; i++)
		keys[i] = lists[i].key;
	envoy_lists_read(&(struct envoy_lists){"configs", keep, take_entry, keys}, dump, len, &f);
	json_decref(f.refused);
	if (!f.more)
		return f.names;
	json_decref(f.names);
	err_set(e, ERR_PROTOCOL, "more than %zu names in %zu bytes: not Envoy's answer",
	    envoy_lists_most(len), len);
	return NULL;
}

bool xds_names_refused(const json_t *names)
{
	const json_t *one;
	size_t i;

	json_array_foreach (names, i, one)
		if (!strcmp(ctl_string(one, "state"), "refused"))
			return true;
	return false;
}

void xds_names_print(const json_t *names)
{
	struct table *t = table_new(5);
	const json_t *one;
	size_t i;

	table_row(t, "TYPE", "STATE", "NAME", "VERSION", "PROBLEM", NULL);
	json_array_foreach (names, i, one)
		table_row(t, ctl_string(one, "type"), ctl_string(one, "state"),
		    ctl_string(one, "name"), ctl_string(one, "version"), ctl_string(one, "why"),
		    NULL);
	table_print_free(&t);
}
