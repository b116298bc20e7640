/* injector.h - the injector as a whole: files -> configuration and certificate -> the server, which
 * asks it of each pod.
 *
 * A file that is wrong changes nothing: what was in force stays, the log says why, and the metric
 * agentd_injector_files_current is 0.  At the start there is nothing to stay, so it is refused.
 */
#pragma once
#include "base/loop.h"
#include <stdint.h>

struct err;
struct injector;
struct options;
struct server;

/* Takes the fd.  `o` outlives it.  NULL: refused. */
struct injector *injector_new(
    struct loop *l, const struct options *o, int listen_fd, struct err *e);
/* It is ready when its owner says so: server_ready_set(). */
struct server *injector_server(struct injector *i);
void injector_free(struct injector **i);
