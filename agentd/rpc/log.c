/* log.c - grpc's own log lines become ours.
 *
 * They come from any of its threads.  Its errors are our warnings: grpc recovers by itself, and
 * what it cannot repair arrives as the status of a stream.  Two things make them dangerous: core
 * prints whole header values, tokens among them (grpc-core.md 4), and a peer can cause them at
 * will. So a line that talks of headers loses its text, and no more than a handful per second pass.
 */
#include "common/log.h"
#include "rpc_internal.h"

#include <grpc/support/log.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

LOG_SCOPE("grpc");

enum { LINES_PER_SECOND = 5 };

static bool too_many(void)
{
	static _Atomic uint64_t window; /* second << 8 | lines in it */
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	uint64_t seen = atomic_load(&window), next;

	do {
		next = seen >> 8 == (uint64_t)now.tv_sec ? seen + 1 : (uint64_t)now.tv_sec << 8 | 1;
		if ((next & 0xff) > LINES_PER_SECOND)
			return true;
	} while (!atomic_compare_exchange_weak(&window, &seen, next));
	return false;
}

static bool may_hold_secrets(const char *text)
{
	static const char *const words[] = {
	    "metadata", "header", "raw_bytes", "authorization", "bearer"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasestr(text, words[i]))
			return true;
	return false;
}

static void on_log(gpr_log_func_args *a)
{
	const char *slash = strrchr(a->file, '/'), *file = slash ? slash + 1 : a->file;

	if (too_many())
		return;
	if (may_hold_secrets(a->message))
		log_warn(NULL, "%s:%d: (a message about headers, not shown)", file, a->line);
	else
		log_warn(NULL, "%s:%d: %s", file, a->line, a->message);
}

void rpc_log_init(void)
{
	gpr_set_log_function(on_log);
	gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR); /* whatever GRPC_VERBOSITY says */
}
