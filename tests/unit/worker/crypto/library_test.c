/* library_test.c - OpenSSL works until the process has ended; a child exits. */
#include "worker/crypto/library.h"
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* after the four above */
#include <cmocka.h>

static int digest(void)
{
	unsigned char out[EVP_MAX_MD_SIZE];

	return EVP_Digest("x", 1, out, NULL, EVP_sha256(), NULL);
}

/* It was registered before OpenSSL could register its own, so it runs after that. */
static void after_the_others(void)
{
	_exit(digest() ? 0 : 1);
}

/* Without library_stays() the child dies of SIGSEGV in libcrypto. */
static void it_stays(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid) {
		atexit(after_the_others);
		library_stays();
		exit(digest() ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
