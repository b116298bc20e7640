/* log.h - the broker logs as the worker does: it reads no agentd.yaml and has no admin socket.
 */
#pragma once

struct link;

/* Tells the broker the format of this process, and the level that the scope "broker" has here.  At
 * the start, and whenever a level was changed. */
void link_log(struct link *p);
