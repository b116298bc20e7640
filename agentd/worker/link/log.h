/* log.h - the broker logs as the worker does: it reads no agentd.yaml and has no admin socket.
 */
#pragma once

struct link;

/* Tells the broker the log format of this process, and the level of the scope "broker".  Call it at
 * the start, and after each change of a level. */
void link_log(struct link *p);
