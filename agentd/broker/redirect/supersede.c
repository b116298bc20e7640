/* supersede.c - pod by pod, then the rest.
 *
 * Where such a layout is, is looked up each time: there is hardly ever one.
 */
#include "supersede.h"
#include "common/log.h"
#include "common/mem.h"
#include "links.h"
#include "listeners.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum { NAME_SIZE = 32, LAYOUTS_MAX = 16 };

struct layouts {
	char path[LAYOUTS_MAX][REDIRECT_PATH_SIZE];
	int n;
};

/* <bpffs>/agentd/v<layout>, but for our own. */
static void find(const struct redirect *r, struct layouts *out)
{
	const char *own = strrchr(r->pins, '/') + 1;
	char path[REDIRECT_PATH_SIZE];
	const struct dirent *e;

	out->n = 0;
	snprintf(path, sizeof(path), "%.*s", (int)(own - r->pins), r->pins);
	DIR *d = opendir(path);
	while (d && (e = readdir(d)) && out->n < LAYOUTS_MAX)
		if (e->d_name[0] == 'v' && strlen(e->d_name) < NAME_SIZE &&
		    strcmp(e->d_name, own) != 0)
			snprintf(out->path[out->n++], REDIRECT_PATH_SIZE, "%.128s%.31s", path,
			    e->d_name);
	if (d)
		closedir(d);
}

static void path_of(
    const char *layout, const struct uuid *pod, const char *name, char out[REDIRECT_PATH_SIZE])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(out, REDIRECT_PATH_SIZE, "%.160s/pods/%s%s", layout, uid, name);
}

/* Not while a pod is in there. */
static void take_down_empty(const char *layout)
{
	char path[REDIRECT_PATH_SIZE];

	snprintf(path, sizeof(path), "%.160s/pods", layout);
	if (rmdir(path) && errno != ENOENT)
		return;
	if (redirect_pins_take_down(layout))
		log_error(
		    NULL, "eBPF programs of another agentd stay: %s: %s", layout, strerror(errno));
	else
		log_info(NULL, "eBPF programs of another agentd were replaced: %s", layout);
}

/* Its programs do not see the pod any more. */
static void delete_entry(const char *layout, uint64_t cgroup)
{
	char path[REDIRECT_PATH_SIZE];
	struct bpf_map_info info = {0};
	uint32_t len = sizeof(info);

	snprintf(path, sizeof(path), "%.160s/map_pods", layout);
	auto_close int map = bpf_obj_get(path);
	if (map >= 0 && !bpf_obj_get_info_by_fd(map, &info, &len) &&
	    info.key_size == sizeof(cgroup))
		bpf_map_delete_elem(map, &cgroup);
}

/* --- pods --- */

void redirect_supersede(const struct redirect *r)
{
	struct layouts other;

	find(r, &other);
	for (int i = 0; i < other.n; i++)
		take_down_empty(other.path[i]);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool is_live_there(const struct redirect *r, const struct uuid *pod)
{
	char path[REDIRECT_PATH_SIZE];
	struct layouts other;
	bool is = false;

	find(r, &other);
	for (int i = 0; i < other.n; i++) {
		path_of(other.path[i], pod, "/redirect_lookup", path);
		is |= !access(path, F_OK);
	}
	return is;
}

bool redirect_supersede_waits(
    const struct redirect *r, struct redirect_pod_state *p, const struct redirect_where *at)
{
	if (p->cgroup || at->netns >= 0 || !r->can.late ||
	    !redirect_listeners_possible(at->cgroup) || !is_live_there(r, &p->uid))
		return false;
	if (!p->waits_ms)
		p->waits_ms = now_ms();
	return now_ms() - p->waits_ms < REDIRECT_SUPERSEDE_WAIT_MS;
}

static void take_down(const char *layout, const struct redirect_pod_state *p, const char *name)
{
	char path[REDIRECT_PATH_SIZE];

	path_of(layout, &p->uid, name, path);
	redirect_pins_take_down(path);
}

/* Before it is live, what steers in its network namespace is still theirs. */
static void end_decisions(const char *layout, const struct redirect_pod_state *p)
{
	static const char *const names[] = {"/redirect_gate", "/redirect_sock_create",
	    "/redirect_names", "/redirect_setsockopt", "/redirect_meet"};

	delete_entry(layout, p->cgroup);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		take_down(layout, p, names[i]);
	if (p->steered == REDIRECT_STEERED_LIVE)
		take_down(layout, p, "/redirect_lookup");
}

static void end_answers(const char *layout, const struct redirect_pod_state *p)
{
	char path[REDIRECT_PATH_SIZE];

	take_down(layout, p, "/redirect_getsockopt");
	path_of(layout, &p->uid, "", path);
	if (p->steered == REDIRECT_STEERED_LIVE ? !redirect_pins_take_down(path) : !rmdir(path))
		take_down_empty(layout);
}

void redirect_supersede_pod(const struct redirect *r, struct redirect_pod_state *p)
{
	bool over = p->superseded_ms && now_ms() - p->superseded_ms >= REDIRECT_LAST_ANSWERS_MS;
	char path[REDIRECT_PATH_SIZE];
	struct layouts other;
	bool there = false;

	find(r, &other);
	for (int i = 0; i < other.n; i++) {
		path_of(other.path[i], &p->uid, "", path);
		if (access(path, F_OK))
			continue;
		there = true;
		end_decisions(other.path[i], p);
		if (over)
			end_answers(other.path[i], p);
	}
	if (!there)
		p->superseded_ms = 0;
	else if (!p->superseded_ms)
		p->superseded_ms = now_ms();
}

void redirect_supersede_remove(const struct redirect *r, const struct uuid *pod)
{
	char path[REDIRECT_PATH_SIZE];
	struct layouts other;

	find(r, &other);
	for (int i = 0; i < other.n; i++) {
		path_of(other.path[i], pod, "/redirect_getsockopt", path);
		delete_entry(other.path[i], redirect_link_cgroup(path));
		path_of(other.path[i], pod, "", path);
		if (!redirect_pins_take_down(path))
			take_down_empty(other.path[i]);
	}
}

/* All names first: `each` may remove what is read. */
static uint32_t list_pods(const struct redirect *r, const char *layout, struct uuid *out)
{
	char path[REDIRECT_PATH_SIZE];
	const struct dirent *e;
	uint32_t n = 0;

	snprintf(path, sizeof(path), "%.160s/pods", layout);
	DIR *d = opendir(path);
	while (d && n < REDIRECT_PODS_MAX && (e = readdir(d)))
		n += uuid_parse(&out[n], e->d_name) && !redirect_pod_find(r, &out[n]);
	if (d)
		closedir(d);
	return n;
}

void redirect_supersede_pods(
    const struct redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx)
{
	auto_free struct uuid *pods = mem_zalloc(REDIRECT_PODS_MAX * sizeof(*pods));
	struct layouts other;

	find(r, &other);
	for (int i = 0; i < other.n; i++) {
		uint32_t n = list_pods(r, other.path[i], pods);
		for (uint32_t k = 0; k < n; k++)
			each(ctx, &pods[k]);
	}
}
