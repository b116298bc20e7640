/* words.c - see words.h. */
#include "words.h"
#include <string.h>

bool words_has(const char *words, const char *word)
{
	const size_t length = strlen(word);

	for (const char *at = words; at && *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");

		if (n && n == length && !memcmp(at, word, n))
			return true;
		at += n;
	}
	return false;
}
