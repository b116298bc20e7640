/* metrics_rig.c - see metrics_rig.h. */
#include "metrics_rig.h"
#include "base/metrics.h"
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool look(const char *text, bool must)
{
	struct evbuffer *page = evbuffer_new();

	metrics_render(page);
	evbuffer_add(page, "", 1);
	const char *all = (const char *)evbuffer_pullup(page, -1);
	bool found = strstr(all, text) != NULL;
	if (must && !found)
		fail_msg("\"%s\" is not in:\n%s", text, all);
	evbuffer_free(page);
	return found;
}

bool metrics_say(const char *text)
{
	return look(text, false);
}

void assert_metric(const char *text)
{
	look(text, true);
}
