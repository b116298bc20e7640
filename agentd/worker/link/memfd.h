/* memfd.h - contents between worker and broker: sealed memfds of at most 1 MiB. */
#pragma once
#include <stddef.h>

struct err;

/* Sealed, so that the broker can read it without it changing or shrinking under its hands; -1. */
int link_memfd_sealed(const void *data, size_t size, struct err *e);
/* What the broker sent, with a NUL behind it; the caller frees it, wiped if it is a secret. */
char *link_memfd_read(int fd, size_t *size, struct err *e);
