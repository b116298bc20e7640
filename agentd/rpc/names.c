/* names.c - the words for status codes and connectivity.  No grpc in here, so a test that fakes
 * the rest of rpc still has the real names. */
#include "channel.h"

#include <stdio.h>

const char *rpc_status_name(int status)
{
	static const char *const names[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT",
	    "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};
	static char other[sizeof("code -2147483648")];

	if (status >= 0 && (size_t)status < sizeof(names) / sizeof(names[0]))
		return names[status];
	snprintf(other, sizeof(other), "code %d", status);
	return other;
}

const char *rpc_channel_state_name(enum rpc_channel_state s)
{
	static const char *const names[] = {"IDLE", "CONNECTING", "READY", "TRANSIENT_FAILURE"};

	return names[s];
}
