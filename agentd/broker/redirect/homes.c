/* homes.c - an address -> the pods of the table that have it -> one, which asked for it and is
 * live: its row; else none.
 */
#include "homes.h"
#include "accelerate.h"
#include <bpf/bpf.h>
#include <string.h>
#include <utlist.h>

static bool is_same(const struct redirect_address *a, const struct redirect_address *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool is_known(const struct redirect_address *a)
{
	return a->word[0] | a->word[1] | a->word[2] | a->word[3];
}

/* NULL: nobody, or more than one. */
static const struct redirect_pod_state *owner_of(
    const struct redirect *r, const struct redirect_address *a)
{
	const struct redirect_pod_state *p = NULL, *found = NULL;

	DL_FOREACH (r->pods, p) {
		if (!is_same(&p->entry.source4, a) && !is_same(&p->entry.source6, a))
			continue;
		if (found)
			return NULL;
		found = p;
	}
	return found;
}

static bool is_wanted(const struct redirect *r, const struct redirect_pod_state *p)
{
	return r->between && p->steered == REDIRECT_STEERED_LIVE &&
	       p->entry.flags & REDIRECT_ACCELERATE_NODE;
}

static void tell(const struct redirect *r, const struct redirect_address *a)
{
	int homes = redirect_accelerate_homes(r);
	const struct redirect_pod_state *p;

	if (homes < 0 || !is_known(a))
		return;
	p = owner_of(r, a);
	if (p && is_wanted(r, p))
		bpf_map_update_elem(homes, a, &p->entry.index, BPF_ANY);
	else
		bpf_map_delete_elem(homes, a);
}

static void tell_pod(const struct redirect *r, const struct redirect_pod_state *p)
{
	tell(r, &p->entry.source4);
	tell(r, &p->entry.source6);
}

void redirect_homes_changed(const struct redirect *r, const struct redirect_pod_state *p,
    const struct redirect_address was[2])
{
	if (!r->between)
		return;
	tell_pod(r, p);
	if (was && !is_same(&was[0], &p->entry.source4))
		tell(r, &was[0]);
	if (was && !is_same(&was[1], &p->entry.source6))
		tell(r, &was[1]);
}

void redirect_homes_left(const struct redirect *r, const struct redirect_address was[2])
{
	tell(r, &was[0]);
	tell(r, &was[1]);
}

void redirect_homes_sweep(const struct redirect *r)
{
	int homes = redirect_accelerate_homes(r);
	const struct redirect_pod_state *p = NULL;
	struct redirect_address at, next;
	bool more = homes >= 0 && bpf_map_get_next_key(homes, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(homes, &at, &next) == 0;
		tell(r, &at);
	}
	if (r->between)
		DL_FOREACH (r->pods, p)
			tell_pod(r, p);
}

static bool has(int homes, const struct redirect_address *a, uint32_t index)
{
	uint32_t is;

	return is_known(a) && !bpf_map_lookup_elem(homes, a, &is) && is == index;
}

bool redirect_homes_has(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = redirect_pod_find(r, pod);
	int homes = redirect_accelerate_homes(r);

	return p && homes >= 0 && p->accelerated &&
	       (has(homes, &p->entry.source4, p->entry.index) ||
		   has(homes, &p->entry.source6, p->entry.index));
}
