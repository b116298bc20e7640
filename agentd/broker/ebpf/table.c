/* table.c - a row for each pod, below its list of counters; a row that is given out again gets
 * another index.
 */
#include "table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

LOG_SCOPE("broker");

struct redirect_pod_state *ebpf_pod_find(const struct redirect *r, const struct uuid *uid)
{
	struct redirect_pod_state *p;

	DL_FOREACH (r->pods, p)
		if (uuid_equal(&p->uid, uid))
			return p;
	return NULL;
}

uint32_t ebpf_index(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	return p && p->cgroup ? p->entry.index : 0;
}

uint32_t ebpf_pod_row(uint32_t index)
{
	return index & REDIRECT_ROW_MASK;
}

struct redirect_pod_state *ebpf_pod_at(const struct redirect *r, uint32_t index)
{
	uint32_t row = ebpf_pod_row(index);
	struct redirect_pod_state *p = row <= REDIRECT_PODS_MAX ? r->rows[row] : NULL;

	return p && p->entry.index == index ? p : NULL;
}

struct redirect_pod_state *ebpf_pod_add(struct redirect *r, const struct uuid *uid, uint32_t index)
{
	struct redirect_pod_state *p = mem_zalloc(sizeof(*p));

	p->uid = *uid;
	p->entry.index = index;
	memcpy(p->entry.uid, uid, sizeof(p->entry.uid));
	r->rows[ebpf_pod_row(index)] = p;
	DL_APPEND(r->pods, p);
	return p;
}

static void keep_baseline(struct redirect *r, uint32_t index)
{
	const uint32_t row = ebpf_pod_row(index) - 1;
	struct redirect_counters now;

	if (!bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.counters), &row, &now))
		bpf_map_update_elem(bpf_map__fd(r->bpf->maps.baselines), &index, &now, BPF_ANY);
}

/* A number that none of the sockets can carry which the row's last pod may have left behind. */
static uint32_t new_index(struct redirect *r, uint32_t row)
{
	if (!r->times && getrandom(&r->times, sizeof(r->times), 0) != sizeof(r->times))
		abort();
	return (uint32_t)++r->times << REDIRECT_ROW_BITS | row;
}

struct redirect_pod_state *ebpf_pod_find_or_add(
    struct redirect *r, const struct uuid *uid, struct err *e)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, uid);

	for (uint32_t row = 1; !p && row <= REDIRECT_PODS_MAX; row++)
		if (!r->rows[row]) {
			p = ebpf_pod_add(r, uid, new_index(r, row));
			keep_baseline(r, p->entry.index);
		}
	if (!p)
		err_set(e, ENOSPC, "traffic of %d pods is redirected already", REDIRECT_PODS_MAX);
	return p;
}

void ebpf_pod_forget(struct redirect *r, struct redirect_pod_state *p)
{
	r->rows[ebpf_pod_row(p->entry.index)] = NULL;
	DL_DELETE(r->pods, p);
	free(p->rules);
	free(p->seen);
	free(p->written.rows);
	free(p);
}

void ebpf_pods_free(struct redirect *r)
{
	struct redirect_pod_state *p, *tmp;

	DL_FOREACH_SAFE (r->pods, p, tmp)
		ebpf_pod_forget(r, p);
}

int ebpf_pod_uid(const struct redirect *r, uint32_t index, struct uuid *out)
{
	const struct redirect_pod_state *p = ebpf_pod_at(r, index);

	if (!p)
		return -1;
	*out = p->uid;
	return 0;
}

/* --- neighbours --- */

static bool is_among(const uint64_t *ids, int n, uint64_t id)
{
	for (int i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

bool ebpf_pod_holds(const struct redirect_pod_state *p, const uint64_t above[REDIRECT_DEPTH])
{
	return p->cgroup && is_among(above, REDIRECT_DEPTH, p->cgroup);
}

/* NULL: they have nothing to do with each other. */
static const char *relation(
    const struct redirect_pod_state *p, const struct redirect_pod_state *other)
{
	if (other == p || other->leaves)
		return NULL;
	if (other->cgroup == p->above[0])
		return "the cgroup is that of pod";
	if (ebpf_pod_holds(other, p->above))
		return "the cgroup lies in that of pod";
	if (is_among(other->above, REDIRECT_DEPTH, p->above[0]))
		return "in the cgroup lies that of pod";
	return NULL;
}

int ebpf_pod_check_neighbours(
    const struct redirect *r, const struct redirect_pod_state *p, struct err *e)
{
	const struct redirect_pod_state *other = NULL;
	char name[UUID_TEXT_SIZE];
	const char *how;

	DL_FOREACH (r->pods, other) {
		how = relation(p, other);
		if (!how)
			continue;
		uuid_format(&other->uid, name);
		return err_set(e, EEXIST, "%s %s", how, name);
	}
	return 0;
}

/* --- in the maps --- */

/* A pod that an earlier broker wrote, and we know nothing else of, is seen already. */
int ebpf_pod_put_level(struct redirect *r, const struct redirect_pod_state *p)
{
	int fd = bpf_map__fd(r->bpf->maps.pod_levels), below = 0;
	const uint32_t at = 0;
	uint32_t levels, bit;

	while (below < REDIRECT_DEPTH && p->above[below])
		below++;
	bit = below ? 1u << (r->top.level + below) : 0;
	if (bpf_map_lookup_elem(fd, &at, &levels))
		return -1;
	if ((levels & bit) == bit)
		return 0;
	levels |= bit;
	return bpf_map_update_elem(fd, &at, &levels, BPF_ANY) ? -1 : 1;
}

struct redirect_pod_state *ebpf_pod_before(
    const struct redirect *r, const struct redirect_pod_state *p)
{
	struct redirect_pod_state *other;

	DL_FOREACH (r->pods, other)
		if (other != p && other->leaves && other->cgroup == p->above[0])
			return other;
	return NULL;
}

int ebpf_pod_put(struct redirect *r, const struct redirect_pod_state *p, struct err *e)
{
	if (ebpf_pod_put_level(r, p) < 0 ||
	    bpf_map_update_elem(
		bpf_map__fd(r->bpf->maps.pods_by_index), &p->entry.index, &p->entry, BPF_ANY) ||
	    bpf_map_update_elem(bpf_map__fd(r->bpf->maps.pods), &p->cgroup, &p->entry, BPF_ANY))
		return err_sys(e, "eBPF maps of pods");
	return 0;
}

void ebpf_pod_take_out(struct redirect *r, const struct redirect_pod_state *p)
{
	int map = bpf_map__fd(r->bpf->maps.pods);
	struct redirect_pod there;

	if (p->cgroup && !bpf_map_lookup_elem(map, &p->cgroup, &there) &&
	    there.index == p->entry.index)
		bpf_map_delete_elem(map, &p->cgroup);
}

void ebpf_pod_trace(struct redirect *r, const struct uuid *pod, bool on)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);
	struct err e;

	if (!p || !p->cgroup || !(p->entry.flags & REDIRECT_TRACE) == !on)
		return;
	p->entry.flags ^= REDIRECT_TRACE;
	if (ebpf_pod_put(r, p, &e))
		log_warn(NULL, "trace: %s", e.msg);
}
