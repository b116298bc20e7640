/* store.h - small contents by name: files of one directory, or sealed memfds.
 *
 * A memfd is listed among the kept descriptors as "<kind>.<name>" and comes back from there.  A
 * write replaces the old content, or changes nothing.  Names are the caller's: of safe characters.
 */
#pragma once
#include "common/err.h"
#include <dirent.h>
#include <stdbool.h>

struct broker_fdstore;
struct broker_held;

enum { BROKER_STORE_NAME = 80 };

/* Shared by several stores. */
struct broker_budget {
	unsigned n, max; /* entries */
	size_t bytes, bytes_max;
};

/* Embed it; zeroed: not open. */
struct broker_store {
	const char *kind;
	char *dir; /* NULL: in memory */
	struct broker_fdstore *kept;
	struct broker_budget *budget;
	struct broker_held *held; /* in memory */
	/* walk */
	DIR *files;
	struct broker_held *next;
};

/* `parent` NULL: in memory.  Entries stored earlier are there again, and counted. */
int broker_store_open(struct broker_store *s, const char *parent, struct broker_fdstore *kept,
    struct broker_budget *budget, struct err *e);
void broker_store_close(struct broker_store *s);

int broker_store_put(struct broker_store *s, const char *name, int memfd, struct err *e);
/* A sealed copy, the caller's; -1: ENOENT, or it cannot be read. */
int broker_store_get(struct broker_store *s, const char *name, struct err *e);
int broker_store_del(struct broker_store *s, const char *name, struct err *e); /* or none */

/* Names, in no order; nothing may be put or deleted in between. */
int broker_store_walk(struct broker_store *s, struct err *e);
bool broker_store_walk_on(struct broker_store *s, char name[BROKER_STORE_NAME]);
void broker_store_walk_end(struct broker_store *s);
