/* uuid.c - one spelling only, so that a uid can name a directory and be compared as text or bytes.
 *
 * The broker links this file too: libc and nothing else.
 */
#include "uuid.h"

#include <string.h>

static const char hex[] = "0123456789abcdef";

static bool is_dash(unsigned i)
{
	return i == 8 || i == 13 || i == 18 || i == 23;
}

static int nibble(char c)
{
	const char *p = c ? strchr(hex, c) : NULL;

	return p ? (int)(p - hex) : -1;
}

bool uuid_parse(struct uuid *u, const char *text)
{
	struct uuid parsed = {0};
	unsigned digits = 0;

	for (unsigned i = 0; i < UUID_TEXT_SIZE - 1; i++) {
		if (is_dash(i)) {
			if (text[i] != '-')
				return false;
			continue;
		}
		int v = nibble(text[i]);
		if (v < 0)
			return false;
		parsed.bytes[digits / 2] = (uint8_t)(parsed.bytes[digits / 2] << 4 | v);
		digits++;
	}
	if (text[UUID_TEXT_SIZE - 1] != '\0')
		return false;
	*u = parsed;
	return true;
}

void uuid_format(const struct uuid *u, char out[UUID_TEXT_SIZE])
{
	unsigned digits = 0;

	for (unsigned i = 0; i < UUID_TEXT_SIZE - 1; i++) {
		if (is_dash(i)) {
			out[i] = '-';
			continue;
		}
		unsigned byte = u->bytes[digits / 2];
		out[i] = hex[digits % 2 ? byte & 15 : byte >> 4];
		digits++;
	}
	out[UUID_TEXT_SIZE - 1] = '\0';
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}
