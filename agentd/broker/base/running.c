/* running.c - the lock is held -> the file names who holds it -> /proc has its command line.
 *
 * Only root can lock that file, or write into it.
 */
#include "running.h"
#include "common/mem.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { COMMAND_MAX = 64 << 10 };

/* 0: nobody. */
static pid_t holder(const char *run)
{
	char path[PATH_MAX], text[16] = "";

	snprintf(path, sizeof(path), "%s/lock", run);
	auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || !flock(fd, LOCK_SH | LOCK_NB) || pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	return (pid_t)strtol(text, NULL, 10);
}

static char *read_command(pid_t pid, size_t *size)
{
	char path[32], *text = mem_zalloc(COMMAND_MAX + 1);
	size_t n = 0;
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && n < COMMAND_MAX && (got = read(fd, text + n, COMMAND_MAX - n)) > 0)
		n += (size_t)got;
	*size = n;
	return text;
}

bool broker_running_find(struct broker_running *r, const char *run)
{
	size_t size;
	int n = 0;

	if ((r->pid = holder(run)) <= 0)
		return false;
	r->text = read_command(r->pid, &size);
	for (size_t i = 0; i < size; i++)
		n += !r->text[i];
	r->argv = mem_zalloc(((size_t)n + 1) * sizeof(char *));
	for (char *p = r->text; r->argc < n; p += strlen(p) + 1)
		r->argv[r->argc++] = p;
	return r->argc > 0;
}

void broker_running_clear(struct broker_running *r)
{
	free(r->argv);
	free(r->text);
	*r = (struct broker_running){.pid = 0};
}
