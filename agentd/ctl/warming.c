/* warming.c - the dump -> clusters that warm, and listeners' states that do -> those that are old
 * enough.
 */
#include "warming.h"
#include "common/err.h"
#include "common/mem.h"
#include "envoy_admin.h"
#include "envoy_lists.h"
#include "show.h"
#include <string.h>
#include <time.h>

enum { WARMS_S = 60, SHOWN_MAX = 100 };

enum { CLUSTERS, LISTENERS, LISTS };
static const char *const lists[LISTS + 1] = {
    [CLUSTERS] = "dynamic_warming_clusters", [LISTENERS] = "dynamic_listeners"};

struct found {
	json_t *all;
	int64_t now_s;
};

/* "2026-01-31T12:00:00.123Z"; 0: it is no such time. */
static int64_t read_time(const char *text)
{
	struct tm at = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &at);

	return end && (*end == '.' || *end == 'Z') ? timegm(&at) : 0;
}

/* `state` has the time: the entry of a cluster, the warming state of a listener. */
static void add(struct found *f, const char *type, const char *name, const json_t *state)
{
	const int64_t since_s = read_time(ctl_string(state, "last_updated"));

	const int64_t for_s = f->now_s - since_s;

	if (*name && since_s && for_s >= WARMS_S && json_array_size(f->all) < SHOWN_MAX)
		json_array_append_new(
		    f->all, json_pack("{s:s, s:o, s:I}", "type", type, "name",
				ctl_printable_string(name), "for_s", (json_int_t)for_s));
}

static void take_entry(void *ctx, const char *list, const json_t *entry)
{
	struct found *f = ctx;

	if (!strcmp(list, lists[CLUSTERS]))
		add(f, "Cluster", ctl_string(json_object_get(entry, "cluster"), "name"), entry);
	else
		add(f, "Listener", ctl_string(entry, "name"),
		    json_object_get(entry, "warming_state"));
}

json_t *ctl_warming_of(const char *dump, size_t len, int64_t now_s)
{
	static const char *const keep[] = {
	    "cluster", "name", "warming_state", "last_updated", NULL};
	struct found f = {json_array(), now_s};

	envoy_lists_read(&(struct envoy_lists){"configs", keep, take_entry, lists}, dump, len, &f);
	return f.all;
}

void ctl_warming_add(const struct ctl *c, const json_t *pod, json_t *thing)
{
	struct err why;
	size_t len;

	if (!ctl_envoy_is_known(pod))
		return;
	auto_free char *dump = ctl_envoy_page(c, pod, "/config_dump", &len, &why);
	if (dump)
		json_object_set_new(thing, "warming", ctl_warming_of(dump, len, time(NULL)));
	else
		json_object_set_new(thing, "warming_unknown", json_string(why.msg));
}
