/* uuid.h - a pod's uid: the canonical 36-character lower-case form and nothing else. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { UUID_TEXT_SIZE = 37 }; /* with the NUL */

struct uuid {
	uint8_t bytes[16];
};

bool uuid_parse(struct uuid *u, const char *text);
void uuid_format(const struct uuid *u, char out[UUID_TEXT_SIZE]);
bool uuid_equal(const struct uuid *a, const struct uuid *b);
