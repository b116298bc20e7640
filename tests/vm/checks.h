/* checks.h - what the parts of the checks share. */
#pragma once
#include "loader.h"
#include "sockets.h"
#include <sys/resource.h>

#define RLIM ((size_t)RLIM_INFINITY)

void part(const char *name); /* what the next checks are of */
void check(bool good, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void check_tally(const struct tally *t, uint64_t before, const char *name);
struct redirect_rules default_rules(void);
void check_envoy(const struct world *w, const char *path);
