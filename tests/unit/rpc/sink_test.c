/* sink_test.c - connections in which a descriptor lies whose close(2) lasts for an hour.  Who waits
 * for one is ended by SIGALRM.
 * LINK: tests/unit/lingering.c
 */
#include "rpc/sink.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/lingering.h"

enum { PATIENCE_S = 60, MANY = 100 };

static int setup(void **state)
{
	(void)state;
	alarm(PATIENCE_S);
	return 0;
}

static void wait_closed(int fd)
{
	while (fcntl(fd, F_GETFD) >= 0)
		usleep(1000);
}

static void test_what_lingers_inside(void **state)
{
	int peers[MANY], ends[MANY], mine[MANY], pair[2];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		assert_true(sink_is_needed(pair[1]));
		ends[i] = pair[0];
		mine[i] = pair[1];
		for (int n = 0; n < 2; n++) {
			lingering_give(pair[0], &peers[i]);
			if (n == 0)
				close(peers[i]); /* that one does not wait */
		}
	}
	for (int i = 0; i < MANY; i++)
		sink_close(mine[i]);
	for (int i = 0; i < MANY; i++)
		wait_closed(mine[i]);
	for (int i = 0; i < MANY; i++) {
		char byte;
		assert_true(read(ends[i], &byte, 1) <= 0);
		close(ends[i]);
		close(peers[i]);
	}
}

/* What the broker's listeners have (broker/base/listener.c). */
static void test_where_none_can_come(void **state)
{
	const int none = 0;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (setsockopt(pair[1], SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &none, sizeof(none))) {
		assert_true(sink_is_needed(pair[1])); /* a kernel before 6.16 */
	} else {
		assert_false(sink_is_needed(pair[1]));
		sink_close(pair[1]);
		assert_int_equal(fcntl(pair[1], F_GETFD), -1);
		assert_int_equal(read(pair[0], pair, 1), 0);
	}
	close(pair[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(test_where_none_can_come, setup),
	    cmocka_unit_test_setup(test_what_lingers_inside, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
