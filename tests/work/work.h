/* work.h - a program that does the same piece of work for each file of its command line, so that
 * its work can be counted: callgrind counts the instructions of each call of work_case()
 * (work.py), and without callgrind the program prints its CPU and its memory.
 */
#pragma once
#include <stddef.h>

/* Once, before the first piece. */
void work_prepare(void);
/* The piece of work.  `bytes` is NUL-terminated. */
void work_case(const char *bytes, size_t len);
