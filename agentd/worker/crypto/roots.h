/* roots.h - root certificates as one text, each once, ordered: what ends last comes first; those
 * that end together are in the order of their text.
 *
 * So the same set gives the same ROOTCA, in whatever order the roots came (istio-agent.md 0.13).
 * And Envoy, which takes the first root that fits by name and key, takes the renewed one and not
 * the one that has ended.
 */
#pragma once
#include <stddef.h>

struct err;

enum { ROOTS_NOTE_SIZE = 256 };

/* A bundle as users have them: its good certificates count, 1 to 64 of them.  `note`: which blocks
 * are left out, by number and kind, and which roots Envoy can confuse; "": all is well.  NULL:
 * there is nothing good in it. */
char *roots_read(const char *pem, size_t len, char note[ROOTS_NOTE_SIZE], struct err *e);
/* Both are texts of certificates and nothing else; `b` may be NULL. */
char *roots_union(const char *a, const char *b);
