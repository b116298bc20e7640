/* warming.c - the dump -> clusters that warm, and listeners' states that do -> those that are old
 * enough.
 */
#include "warming.h"
#include "common/err.h"
#include "envoy_admin.h"
#include "show.h"
#include <string.h>
#include <time.h>

enum { WARMS_S = 60, SHOWN_MAX = 100 };

/* "2026-01-31T12:00:00.123Z"; 0: it is no such time. */
static int64_t read_time(const char *text)
{
	struct tm at = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &at);

	return end && (*end == '.' || *end == 'Z') ? timegm(&at) : 0;
}

/* `state` has the time: the entry of a cluster, the warming state of a listener. */
static void add(json_t *all, const char *type, const char *name, const json_t *state, int64_t now_s)
{
	const int64_t since_s = read_time(ctl_string(state, "last_updated"));

	if (*name && since_s && now_s - since_s >= WARMS_S && json_array_size(all) < SHOWN_MAX)
		json_array_append_new(all, json_pack("{s:s, s:s, s:I}", "type", type, "name", name,
					       "for_s", (json_int_t)(now_s - since_s)));
}

json_t *ctl_warming_of(const json_t *dump, int64_t now_s)
{
	json_t *all = json_array();
	const json_t *part, *entry;
	size_t i, k;

	json_array_foreach (json_object_get(dump, "configs"), i, part) {
		json_array_foreach (json_object_get(part, "dynamic_warming_clusters"), k, entry)
			add(all, "Cluster", ctl_string(json_object_get(entry, "cluster"), "name"),
			    entry, now_s);
		json_array_foreach (json_object_get(part, "dynamic_listeners"), k, entry)
			add(all, "Listener", ctl_string(entry, "name"),
			    json_object_get(entry, "warming_state"), now_s);
	}
	return all;
}

void ctl_warming_add(const struct ctl *c, const json_t *pod, json_t *thing)
{
	struct err why;
	json_t *dump, *warming;

	if (!ctl_envoy_is_known(pod))
		return;
	dump = ctl_envoy_page(c, pod, "/config_dump", &why);
	if (!dump) {
		json_object_set_new(thing, "warming_unknown", json_string(why.msg));
		return;
	}
	warming = ctl_warming_of(dump, time(NULL));
	json_object_set_new(thing, "warming", ctl_printable(warming));
	json_decref(warming);
	json_decref(dump);
}
