/* health.h - is a workload healthy, as far as its probe tells?  Pure: the caller has the clock.
 *
 * begin -> due -> asked -> its result, and so on.  The first question comes after the delay, each
 * other a period after the one before, or at once if that took longer.  So many successes in a row
 * make it healthy, so many failures not; until either it is not known, and nothing is told
 * (bare-metal-identity.md 5).
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum health_state { HEALTH_UNKNOWN, HEALTH_HEALTHY, HEALTH_UNHEALTHY };
const char *health_state_name(enum health_state s); /* "unknown", "healthy", "unhealthy" */

struct health_rules {
	unsigned delay_s, period_s, successes, failures; /* the last three: 1 and more */
};

struct health { /* embed it zeroed */
	struct health_rules rules;
	enum health_state state;
	char why[ERR_MSG_SIZE]; /* the last failure in a row; "": the last question was a success */
	unsigned in_a_row;      /* successes or failures */
	int64_t due_ms;         /* of the next question, on the caller's clock */
};

void health_begin(struct health *h, const struct health_rules *rules, int64_t now_ms);
void health_asked(struct health *h, int64_t now_ms);
/* `why` NULL: a success.  True: the state changed, and istiod is to be told. */
bool health_result(struct health *h, const char *why);
