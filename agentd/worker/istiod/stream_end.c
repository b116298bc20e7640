/* stream_end.c - status and text -> what it means.  grpc core has words of its own for HTTP/2's. */
#include "stream_end.h"
#include "rpc/rpc.h"
#include <string.h>

static bool says_one_of(const char *why, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strstr(why, words[i]))
			return true;
	return false;
}

bool stream_end_is_busy(int status)
{
	return status == RPC_UNAVAILABLE || status == RPC_RESOURCE_EXHAUSTED;
}

bool stream_end_is_plain_end(int status)
{
	return status == RPC_OK || status == RPC_CANCELLED || status == RPC_UNAVAILABLE;
}

bool stream_end_did_harm(const char *why)
{
	static const char *const harm[] = {
	    "ENHANCE_YOUR_CALM", "error code 11", "too_many_pings", "GOAWAY"};

	return says_one_of(why, harm, sizeof(harm) / sizeof(*harm));
}

const char *stream_end_kind(int status, const char *why)
{
	static const char *const usual[] = {"client disconnected", "error reading from server: EOF",
	    "transport is closing", "Socket closed", "GOAWAY"};

	if (status == RPC_OK || status == RPC_CANCELLED || status == RPC_DEADLINE_EXCEEDED)
		return "cancelled";
	if (status == RPC_UNAVAILABLE && says_one_of(why, usual, sizeof(usual) / sizeof(*usual)))
		return "cancelled";
	return "error";
}
