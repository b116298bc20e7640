/* fdstore.c - two tables of names: what this broker keeps, what an earlier one left.
 *
 * start: found by one of three ways -> a maker takes it by name, checks it, puts it -> the worker
 * is ready: the rest is swept.  A sink has a copy of each, so it hears of a drop even when we know
 * nothing of the name any more: a found one that its taker refused is still there.
 */
#include "fdstore.h"
#include "apart.h"
#include "common/log.h"
#include "common/mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <uthash.h>

LOG_SCOPE("broker");

struct entry {
	char name[BROKER_FDSTORE_NAME];
	int fd;
	UT_hash_handle hh;
};

struct broker_fdstore {
	struct entry *sides[2]; /* by broker_fdstore_side */
	struct broker_fdstore_sink sink;
};

struct broker_fdstore *broker_fdstore_new(void)
{
	return mem_zalloc(sizeof(struct broker_fdstore));
}

static struct entry *find(struct entry *table, const char *name)
{
	struct entry *e;

	HASH_FIND_STR(table, name, e);
	return e;
}

static void add(struct entry **table, const char *name, int fd)
{
	struct entry *e = mem_zalloc(sizeof(*e));

	snprintf(e->name, sizeof(e->name), "%s", name);
	e->fd = fd;
	HASH_ADD_STR(*table, name, e);
}

/* The fd; -1: there is none. */
static int forget(struct entry **table, const char *name)
{
	struct entry *e = find(*table, name);
	int fd = e ? e->fd : -1;

	if (e)
		HASH_DEL(*table, e); /* NOLINT(clang-analyzer-*): uthash */
	free(e);
	return fd;
}

void broker_fdstore_drop(struct broker_fdstore *k, const char *name)
{
	forget(&k->sides[BROKER_FDSTORE], name);
	if (k->sink.drop)
		k->sink.drop(k->sink.ctx, name);
}

static int is_name(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~' || name[i] == ':')
			return 0;
	return n > 0 && n < BROKER_FDSTORE_NAME;
}

void broker_fdstore_put(struct broker_fdstore *k, const char *name, int fd)
{
	if (!is_name(name))
		abort(); /* ours are, so only a bug gets here */
	if (find(k->sides[BROKER_FDSTORE], name))
		broker_fdstore_drop(k, name);
	add(&k->sides[BROKER_FDSTORE], name, fd);
	if (k->sink.put)
		k->sink.put(k->sink.ctx, name, fd);
}

/* However it came: it is not for the worker. */
void broker_fdstore_found(struct broker_fdstore *k, const char *name, int fd)
{
	if (!is_name(name) || find(k->sides[BROKER_FOUND], name) ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC)) {
		log_warn(NULL, "a kept descriptor is of no use: its name is \"%.*s\"",
		    BROKER_FDSTORE_NAME, name);
		mem_closep(&fd);
		return;
	}
	add(&k->sides[BROKER_FOUND], name, fd);
}

int broker_fdstore_take(struct broker_fdstore *k, const char *name)
{
	return forget(&k->sides[BROKER_FOUND], name);
}

/* A name that is kept meanwhile was refused by its taker and made again. */
size_t broker_fdstore_sweep(struct broker_fdstore *k)
{
	struct entry *e, *tmp;
	size_t n = 0;

	HASH_ITER (hh, k->sides[BROKER_FOUND], e, tmp) {
		apart_close_listener(e->fd);
		if (!find(k->sides[BROKER_FDSTORE], e->name))
			broker_fdstore_drop(k, e->name);
		HASH_DEL(k->sides[BROKER_FOUND], e); /* NOLINT(clang-analyzer-*): uthash */
		free(e);
		n++;
	}
	return n;
}

void broker_fdstore_each(
    struct broker_fdstore *k, enum broker_fdstore_side side, broker_fdstore_one one, void *ctx)
{
	struct entry *e, *tmp;

	HASH_ITER (hh, k->sides[side], e, tmp)
		one(ctx, e->name, e->fd);
}

void broker_fdstore_mirror(struct broker_fdstore *k, const struct broker_fdstore_sink *to)
{
	k->sink = *to;
	broker_fdstore_each(k, BROKER_FDSTORE, to->put, to->ctx);
}

void broker_fdstore_free(struct broker_fdstore **kp)
{
	struct broker_fdstore *k = take(*kp);
	struct entry *e, *tmp;

	if (!k)
		return;
	for (int side = 0; side < 2; side++) {
		HASH_ITER (hh, k->sides[side], e, tmp) {
			if (side == BROKER_FOUND)
				close(e->fd);
			HASH_DEL(k->sides[side], e); /* NOLINT(clang-analyzer-*): uthash */
			free(e);
		}
	}
	free(k);
}
