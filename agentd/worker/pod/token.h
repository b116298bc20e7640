/* token.h - one pod's token: where it comes from, whether it may be used now, when it ends.
 *
 * It opens the pod's streams and admits it to its certificate (architecture decision 5).
 */
#pragma once

struct err;
struct pod_token;
struct token;

/* The pod's token if it may be used now; else NULL, and `e` says why not. */
const struct token *pod_token_valid(const struct pod_token *t, struct err *e);
