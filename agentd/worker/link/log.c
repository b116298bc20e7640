/* log.c - the scope "broker" is known here, so that levels are read, checked and shown as
 * those of any other scope.  Nothing of the worker's logs in it.
 */
#include "log.h"
#include "common/log.h"
#include "link.h"

LOG_SCOPE("broker");

void link_log(struct link *p)
{
	const struct link_request req = {.op = LINK_LOG,
	    .kind = log_is_json() ? LINK_LOG_JSON : LINK_LOG_LOGFMT,
	    .arg = log_scope_.level};

	link_ask(p, NULL, &req, -1, NULL, NULL);
}
