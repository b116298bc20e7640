/* news.h - what the programs tell at once: an Envoy listens, or a connection found none. */
#pragma once
#include "common/err.h"
#include "common/uuid.h"
#include "ebpf/redirect.h"

struct redirect;
struct redirect_news_ring;

typedef void (*redirect_news_heard)(
    void *ctx, const struct uuid *pod, enum redirect_news_kind kind);

/* NULL: `e` says why. */
struct redirect_news_ring *ebpf_news_new(
    int epoll, struct redirect *r, redirect_news_heard heard, void *ctx, struct err *e);
void ebpf_news_free(struct redirect_news_ring **n);
