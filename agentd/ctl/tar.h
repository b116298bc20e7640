/* tar.h - files of text as a tar archive (POSIX ustar), which every tar reads. */
#pragma once
#include <stddef.h>
#include <stdio.h>

/* `name`: fewer than 100 bytes.  Errors stay in `out` (ferror). */
void ctl_tar_add(FILE *out, const char *name, const char *text, size_t size);
void ctl_tar_end(FILE *out);
