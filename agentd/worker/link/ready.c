/* ready.c - see ready.h. */
#include "ready.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "link.h"
#include "memfd.h"
#include <string.h>

LOG_SCOPE("link");

void link_ready(struct link *p)
{
	link_ask(p, NULL, &(struct link_request){.op = LINK_READY}, -1, NULL, NULL);
}

void link_served(struct link *p, unsigned lost, const char *why)
{
	const struct link_request q = {.op = LINK_SERVED, .arg = lost};
	struct err e;
	auto_close int fd = link_memfd_sealed(why, strlen(why), &e);

	if (fd >= 0)
		link_ask(p, NULL, &q, fd, NULL, NULL);
	else
		log_error(NULL, "the broker cannot be told what is served: %s", e.msg);
}
