/* bundle.h - a caBundle: PEM certificates, each of them trusted (injection.md 1).  Pure.
 *
 * A bundle is whatever others have written: a block that is no CERTIFICATE is as if it were not
 * there; what a block holds is compared byte for byte, and not looked into.  Of a text 256 KiB are
 * read, and 64 certificates.
 */
#pragma once
#include <stdbool.h>

enum { BUNDLE_MUST_MAX = 4 };

struct bundle_want {
	const char *must[BUNDLE_MUST_MAX]; /* PEM, one certificate each; NULL: none */
	bool only;                         /* certificates beside these go */
};

/* False of a bundle with anything beside its certificates, too: another reader may see it
 * otherwise.
 */
bool bundle_holds(const char *bundle, const char *crt);
/* The bundle as it is wanted: what is there in its order, then what is not.  NULL: it is so. */
char *bundle_mend(const char *bundle, const struct bundle_want *want);
