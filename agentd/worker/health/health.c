/* health.c - two counters that end each other, and the time of the next question. */
#include "health.h"
#include <stdio.h>

enum { SECOND_MS = 1000 };

const char *health_state_name(enum health_state s)
{
	static const char *const names[] = {"unknown", "healthy", "unhealthy"};

	return names[s];
}

void health_begin(struct health *h, const struct health_rules *rules, int64_t now_ms)
{
	*h = (struct health){
	    .rules = *rules, .due_ms = now_ms + (int64_t)rules->delay_s * SECOND_MS};
}

void health_asked(struct health *h, int64_t now_ms)
{
	h->due_ms = now_ms + (int64_t)h->rules.period_s * SECOND_MS;
}

bool health_result(struct health *h, const char *why)
{
	const bool failed = why != NULL, failed_before = *h->why != '\0';
	const enum health_state wanted = failed ? HEALTH_UNHEALTHY : HEALTH_HEALTHY;

	if (failed != failed_before)
		h->in_a_row = 0;
	if (h->in_a_row < UINT32_MAX)
		h->in_a_row++;
	(void)snprintf(h->why, sizeof(h->why), "%s", failed ? *why ? why : "no reason" : "");
	if (h->state == wanted || h->in_a_row < (failed ? h->rules.failures : h->rules.successes))
		return false;
	h->state = wanted;
	return true;
}
