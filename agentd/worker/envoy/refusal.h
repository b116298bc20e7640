/* refusal.h - the form of every refusal: KEY: "value" refused; allowed: ... */
#pragma once

struct err;

/* `key` and `value` are made printable and cut.  -1. */
int refusal(const char *key, const char *value, const char *allowed, struct err *e);
