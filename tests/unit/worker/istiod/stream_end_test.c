/* stream_end_test.c - what istiod's and grpc's own words mean (istiod-live.md 1, 3; istio-agent.md
 * 1.8).
 */
#include "rpc/rpc.h"
#include "worker/istiod/stream_end.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void ends_have_a_meaning(void **state)
{
	static const struct {
		int status;
		const char *why;
		bool busy, plain, harm;
		const char *kind;
	} ends[] = {
	    {RPC_OK, "", false, true, false, "cancelled"},
	    {RPC_CANCELLED, "", false, true, false, "cancelled"},
	    {RPC_DEADLINE_EXCEEDED, "", false, false, false, "cancelled"},
	    {RPC_UNAVAILABLE, "Socket closed", true, true, false, "cancelled"},
	    {RPC_UNAVAILABLE, "failed to connect to all addresses", true, true, false, "error"},
	    {RPC_UNAVAILABLE, "GOAWAY received; Error code: 11; Debug Text: too_many_pings", true,
		true, true, "cancelled"},
	    {RPC_RESOURCE_EXHAUSTED, "request rate limit exceeded", true, false, false, "error"},
	    {RPC_RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11", true, false, true,
		"error"},
	    {RPC_PERMISSION_DENIED, "authorization failed", false, false, false, "error"},
	    {RPC_UNAUTHENTICATED, "authentication failure", false, false, false, "error"},
	    {RPC_INVALID_ARGUMENT, "missing node information", false, false, false, "error"},
	    {RPC_UNKNOWN, "", false, false, false, "error"},
	    {RPC_INTERNAL, "transport is closing", false, false, false, "error"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		assert_int_equal(stream_end_is_busy(ends[i].status), ends[i].busy);
		assert_int_equal(stream_end_is_plain_end(ends[i].status), ends[i].plain);
		assert_int_equal(stream_end_did_harm(ends[i].why), ends[i].harm);
		assert_string_equal(stream_end_kind(ends[i].status, ends[i].why), ends[i].kind);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(ends_have_a_meaning)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
