/* broker_file.h - the few files the broker reads for the worker and writes for pods. */
#pragma once
#include "broker_log.h"

/* Where a followed file is.  `dir` is from the command line and may lead through symlinks; `sub`
 * (or NULL) and `name` may not, but for the `..data` of a Kubernetes volume. */
struct broker_place {
	const char *dir, *sub, *name;
};

struct broker_content {
	enum priv_file_state state; /* CONTENT, REMOVED or REFUSED */
	int fd;                     /* CONTENT: a sealed memfd, the caller's; else -1 */
	uint64_t digest;            /* of state and bytes or reason: equal means nothing new */
	struct broker_why why;      /* unless CONTENT */
};
void broker_file_read(const struct broker_place *at, struct broker_content *out);

/* Renames a copy of the sealed `memfd` to `path`, mode 0644. */
int broker_file_write(const char *path, int memfd, struct broker_why *w);
