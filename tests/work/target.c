/* target.c - what a fuzz target does with an input (tests/fuzz/). */
#include "work.h"
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void work_prepare(void)
{
	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&(int){0}, &(char **){NULL});
}

void work_case(const char *bytes, size_t len)
{
	LLVMFuzzerTestOneInput((const uint8_t *)bytes, len);
}
