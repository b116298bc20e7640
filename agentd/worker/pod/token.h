/* agent_token.h - one pod's token: where it comes from, whether it may be used now, when it ends.
 *
 * It opens the pod's streams and admits it to its certificate (decisions.md 5).
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct agent_shared;
struct err;
struct pod;
struct pod_token;
struct token;

/* Another one was read, or could not be; or the one that was read has expired. */
typedef void (*pod_token_changed)(void *ctx, bool expired);
/* A pod with a token of its source's needs pod_token_again() for the
 * first one, too. */
struct pod_token *pod_token_start(
    const struct agent_shared *a, const struct pod *p, pod_token_changed changed, void *ctx);
void pod_token_stop(struct pod_token **t);
void pod_token_again(struct pod_token *t); /* the pod's source has one, or another one */
/* The pod's token if it may be used now. */
const struct token *pod_token_valid(const struct pod_token *t, struct err *e);
json_t *pod_token_dump(const struct pod_token *t); /* valid, expires, why_not */
