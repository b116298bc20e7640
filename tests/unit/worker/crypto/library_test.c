/* library_test.c - OpenSSL works until the process has ended; each case is a child that exits. */
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

static int end_of_child(void (*first)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		atexit(after_the_others);
		first();
		exit(digest() ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void nothing(void)
{
}

/* Without it this test would not see anything. */
static void openssl_goes_at_exit_by_itself(void **state)
{
	(void)state;
	assert_int_equal(end_of_child(nothing), 1);
}

static void it_stays(void **state)
{
	(void)state;
	assert_int_equal(end_of_child(library_stays), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(openssl_goes_at_exit_by_itself),
	    cmocka_unit_test(it_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
