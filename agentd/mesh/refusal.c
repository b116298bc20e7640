/* refusal.c - both texts are the pod's. */
#include "refusal.h"
#include "common/err.h"
#include <string.h>

int refusal(const char *key, const char *value, const char *allowed, struct err *e)
{
	char k[130], v[50];

	err_printable(k, sizeof(k), key, (unsigned)strlen(key));
	err_printable(v, sizeof(v), value, (unsigned)strlen(value));
	return err_set(e, ERR_INVALID, "%s: \"%s\" refused; allowed: %s", k, v, allowed);
}
