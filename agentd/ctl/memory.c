/* memory.c - RLIMIT_DATA -> malloc() says no -> common/mem aborts, which gives jansson its memory,
 * too
 * -> the signal's handler says why.
 */
#include "memory.h"
#include "command.h"
#include "common/mem.h"
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *reason;

static void on_abort(int signal)
{
	static const char who[] = "agentctl: ";

	(void)signal;
	(void)!write(STDERR_FILENO, who, sizeof(who) - 1);
	(void)!write(STDERR_FILENO, reason, strlen(reason));
	(void)!write(STDERR_FILENO, "\n", 1);
	_exit(CTL_PROBLEM);
}

/* What RLIMIT_DATA is compared with; 0: not known. */
static size_t used(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	size_t kib = 0;

	while (f && !kib && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmData:", 7))
			kib = strtoul(line + 7, NULL, 10);
	if (f)
		fclose(f);
	return kib * 1024;
}

void ctl_memory_bound(size_t bytes, const char *why)
{
	struct rlimit r;

	if (reason || getrlimit(RLIMIT_DATA, &r))
		return;
	r.rlim_cur = used() + bytes < r.rlim_max ? used() + bytes : r.rlim_max;
	reason = why;
	signal(SIGABRT, on_abort);
	json_set_alloc_funcs(mem_zalloc, free);
	(void)setrlimit(RLIMIT_DATA, &r);
}
