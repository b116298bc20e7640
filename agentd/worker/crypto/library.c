/* library.c - the one flag. */
#include "library.h"
#include <openssl/crypto.h>
#include <stdlib.h>

void library_stays(void)
{
	if (!OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL))
		abort(); /* no memory */
}
