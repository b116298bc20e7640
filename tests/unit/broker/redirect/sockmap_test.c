/* sockmap_test.c - this kernel is tried; what it says of itself does not depend on when it is
 * asked.
 */
#include "broker/redirect/accelerate.h"
#include "broker/redirect/sockmap.h"
#include "tests/unit/broker/bpf.h"
#include <dirent.h>
#include <errno.h>
#include <unistd.h>

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Whichever it is: a reason, the same again, and nothing stays open. */
static void test_tried(void **state)
{
	struct err first, again;
	unsigned before;
	int rc;

	(void)state;
	redirect_probe(&first);
	rc = redirect_sockmap_try(false, &first);
	before = descriptors();
	assert_int_equal(redirect_sockmap_try(false, &again), rc);
	if (rc)
		assert_string_equal(first.msg, again.msg);
	assert_int_equal(descriptors(), before);
}

/* The fields are right if sockets show by them what the kernel says: e2e/test_accelerate.py. */
static void test_fields(void **state)
{
	struct accelerate_fields f;
	struct err e;

	(void)state;
	if (redirect_sockmap_fields(&f, &e)) {
		assert_non_null(strstr(e.msg, "types"));
		return;
	}
	assert_true(f.write_seq && f.copied_seq && f.rmem_alloc && f.rcvbuf);
	assert_true(f.write_seq > f.rcvbuf && f.copied_seq > f.rmem_alloc);
}

static void test_nothing_stays(void **state)
{
	struct err e;
	unsigned before;

	(void)state;
	redirect_accelerate_try(true, &e);
	before = descriptors();
	redirect_accelerate_try(true, &e);
	assert_int_equal(descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_tried),
	    cmocka_unit_test(test_fields),
	    cmocka_unit_test(test_nothing_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
