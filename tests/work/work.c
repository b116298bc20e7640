/* work.c - prints a line for each file: microseconds of CPU, and KiB of memory at most so far. */
#include "work.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static char *read_all(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	char *bytes;

	if (!f || fseek(f, 0, SEEK_END))
		exit(2);
	*len = (size_t)ftell(f);
	rewind(f);
	bytes = malloc(*len + 1);
	if (fread(bytes, 1, *len, f) != *len)
		exit(2);
	bytes[*len] = '\0';
	fclose(f);
	return bytes;
}

static long cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
	work_prepare();
	for (int i = 1; i < argc; i++) {
		struct rusage used;
		size_t len;
		char *bytes = read_all(argv[i], &len);
		long began = cpu_us();

		work_case(bytes, len);
		began = cpu_us() - began;
		free(bytes);
		getrusage(RUSAGE_SELF, &used);
		printf("%ld %ld\n", began, used.ru_maxrss);
	}
	return 0;
}
