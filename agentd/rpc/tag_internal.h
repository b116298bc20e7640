/* tag_internal.h - an operation of grpc's that is under way, and lists of those that are finished.
 *
 * Everything that grpc will report on is a tag embedded in the object it is about; the object lives
 * until all its tags came back (grpc-core.md 8), also long after its owner let go of it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct rpc_tag;
typedef void (*rpc_tag_done)(struct rpc_tag *t, bool ok); /* on the loop */
struct rpc_tag {
	rpc_tag_done done;
	bool ok;
	struct rpc_tag *next;
};

struct rpc_tags { /* oldest first */
	struct rpc_tag *first, **end;
};

#define tag_owner(t, type, member) ((type *)((char *)(t)-offsetof(type, member)))

static inline void rpc_tags_init(struct rpc_tags *l)
{
	*l = (struct rpc_tags){.end = &l->first};
}

static inline void rpc_tags_add(struct rpc_tags *l, struct rpc_tag *t)
{
	t->next = NULL;
	*l->end = t;
	l->end = &t->next;
}

static inline void rpc_tags_move(struct rpc_tags *to, struct rpc_tags *from)
{
	if (!from->first)
		return;
	*to->end = from->first;
	to->end = from->end;
	rpc_tags_init(from);
}

static inline struct rpc_tag *rpc_tags_take(struct rpc_tags *l)
{
	struct rpc_tag *t = l->first;

	if (t && !(l->first = t->next))
		l->end = &l->first;
	return t;
}
