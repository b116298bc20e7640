#include "clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t ahead_ns, hurry_ns, stopped_ns; /* 0: they run */

static int64_t to_ns(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE) {
		ahead_ns += hurry_ns;
		int64_t ns = (stopped_ns ? stopped_ns : to_ns(t)) + ahead_ns;
		*t = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	}
	return rc;
}

void fake_clock_pass_ms(int64_t ms)
{
	ahead_ns += ms * 1000000;
}

void fake_clock_hurry(int64_t ms)
{
	hurry_ns = ms * 1000000;
}

void fake_clock_stop(void)
{
	struct timespec t;

	if (!stopped_ns && !syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t))
		stopped_ns = (int64_t)t.tv_sec * 1000000000;
}
