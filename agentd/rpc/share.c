/* share.c - see share.h. */
#include "share.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct share common;
static int64_t common_per_second;

/* Thousandths a millisecond are whole ones a second. */
static void fill(struct share *s, int64_t per_second, int64_t burst, int64_t now_ms)
{
	s->left += (now_ms - s->filled_ms) * per_second;
	if (!s->begun || s->left > burst * SHARE_REQUEST)
		s->left = burst * SHARE_REQUEST;
	s->filled_ms = now_ms;
	s->begun = true;
}

void share_set(int64_t requests_per_second)
{
	pthread_mutex_lock(&lock);
	common_per_second = requests_per_second;
	common = (struct share){.left = 0};
	pthread_mutex_unlock(&lock);
}

static bool pay_beyond(int64_t cost, int64_t now_ms)
{
	bool enough = true;

	pthread_mutex_lock(&lock);
	if (common_per_second) {
		fill(&common, common_per_second, common_per_second, now_ms);
		enough = cost <= common.left;
		common.left -= enough ? cost : 0;
	}
	pthread_mutex_unlock(&lock);
	return enough;
}

bool share_pay(struct share *s, int64_t cost, int64_t now_ms)
{
	fill(s, SHARE_PER_SECOND, SHARE_BURST, now_ms);
	s->left -= cost;
	if (s->left >= 0)
		return true;
	cost = -s->left;
	s->left = 0;
	return pay_beyond(cost, now_ms);
}
