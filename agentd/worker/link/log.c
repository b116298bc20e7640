/* link/log.c - the scope "broker" is known here, so that levels are read, checked and shown as
 * those of any other scope.  Nothing of the worker's logs in it.
 */
#include "log.h"
#include "common/log.h"
#include "link_internal.h"

LOG_SCOPE("broker");

void link_log(struct link *p)
{
	static const struct uuid nobody;
	struct link_call *c = link_call_new(p, NULL, LINK_LOG, &nobody, NULL);
	struct link_request req = {.id = c->id,
	    .op = LINK_LOG,
	    .kind = log_is_json() ? LINK_LOG_JSON : LINK_LOG_LOGFMT,
	    .arg = log_scope_.level};

	link_call_transmit(c, &req, -1);
}
