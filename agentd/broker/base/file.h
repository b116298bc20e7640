/* file.h - the few files the broker reads for the worker and writes for pods. */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include <stdbool.h>
#include <sys/types.h>

/* Where a followed file is.  `dir` is from the command line and may lead through symlinks; `sub`
 * (or NULL) and `name` may not, but for the `..data` of a Kubernetes volume. */
struct broker_place {
	const char *dir, *sub, *name;
	bool secret; /* nobody but root may be able to read it */
};

struct broker_content {
	enum link_file_state state; /* CONTENT, REMOVED or REFUSED */
	int fd;                     /* CONTENT: a sealed memfd, the caller's; else -1 */
	uint64_t digest;            /* of state and bytes or reason: equal means nothing new */
	struct err why;             /* unless CONTENT */
};
void broker_file_read(const struct broker_place *at, struct broker_content *out);
/* The same of a file that the command line names. */
void broker_file_read_path(const char *path, struct broker_content *out);
/* A file of one line, without its line feed.  -1 with a code: ENOENT it is not there, EINVAL it may
 * not be read, or is anything else. */
int broker_file_line(const struct broker_place *at, char *out, size_t size, struct err *e);

/* 1: made, with just this mode; 0: something is there. */
int broker_file_directory(const char *path, mode_t mode, struct err *e);
/* Is it memory that can no longer change, of at most 1 MiB? */
int broker_file_check_memfd(int memfd, struct err *e);
/* Renames a copy of the sealed `memfd` to `path`.  `first`: its name until then, of the same file
 * system, where only root can write; NULL: ".<name>.new" beside it. */
int broker_file_write(const char *path, const char *first, mode_t mode, int memfd, struct err *e);
