/* memfd.h - contents between worker and broker: sealed memfds of at most 1 MiB. */
#pragma once
#include <stddef.h>

struct err;

/* Sealed, so that it cannot change or shrink while the broker reads it; -1: failed. */
int link_memfd_sealed(const void *data, size_t size, struct err *e);
/* The content that the broker sent, and a NUL.  The caller frees it, and wipes a secret first. */
char *link_memfd_read(int fd, size_t *size, struct err *e);
