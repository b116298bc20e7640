/* cost.c - stands before a target (ld's --wrap), and tells libFuzzer what each input cost: CPU in
 * steps of a quarter, for each power of two of its size.  So an input is kept that costs more than
 * all before it, and the search goes there.
 *
 * An input that takes more than COST_MS (50) of CPU three times in a row fails.  A time, so this is
 * no part of CI (make fuzz-cost).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIZES = 24, COSTS = 96, TRIES = 3, MS_MAX = 50 };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t reached[SIZES][COSTS];

int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t cost_of(const uint8_t *data, size_t size)
{
	const uint64_t before = cpu_ns();

	(void)__real_LLVMFuzzerTestOneInput(data, size);
	return cpu_ns() - before;
}

static uint64_t most_ns(void)
{
	const char *ms = getenv("COST_MS");

	return (ms ? strtoull(ms, NULL, 10) : MS_MAX) * 1000000;
}

/* Only at the size that it has; what is kept is the smallest of its cost. */
static void tell(size_t size, uint64_t ns)
{
	unsigned rows = 0, column = 0;

	for (; size > 1 && rows < SIZES - 1; size /= 2)
		rows++;
	for (uint64_t step = 1000; step < ns && column < COSTS - 1; step += step / 4)
		column++;
	reached[rows][column] = 1;
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t most = most_ns();
	uint64_t least = cost_of(data, size);

	for (int i = 1; i < TRIES && least > most; i++) {
		const uint64_t again = cost_of(data, size);

		least = again < least ? again : least;
	}
	tell(size, least);
	if (least > most) {
		fprintf(stderr, "%zu bytes take %llu ms of CPU\n", size,
		    (unsigned long long)(least / 1000000));
		abort();
	}
	return 0;
}
