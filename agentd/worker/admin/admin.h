/* admin.h - the node's own pages, on a socket only root can open.
 *
 * GET pages answer JSON (or text); anything a page shows is public to root, so no token, key or
 * bootstrap secret is ever put into one.  Write verbs are POST.
 */
#pragma once
#include "base/http/http.h"
#include <jansson.h>

struct admin;
struct loop;

struct admin *admin_new(struct loop *l, int listen_fd); /* takes the fd */
void admin_free(struct admin **a);
/* GET `path`: `serve` answers, now or later (http_defer()). */
void admin_serve(struct admin *a, const char *path, http_handler serve, void *ctx);
void admin_reply_json(struct http_request *req, json_t *value); /* takes the value */
/* The same for one that was deferred. */
void admin_later_json(struct http_later **slot, json_t *value);
void admin_later_text(struct http_later **slot, int status, const char *text);
void admin_on_levels(struct admin *a, void (*changed)(void *ctx), void *ctx); /* of the log */
/* /metrics runs `before` first, so that gauges can be brought up to date. */
void admin_before_metrics(struct admin *a, void (*before)(void *ctx), void *ctx);
