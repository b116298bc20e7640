/* stream_end.h - what the end of a stream to istiod means, from its status and text. */
#pragma once
#include <stdbool.h>

/* istiod has no room, or is away; this says nothing about the pod (istiod-live.md 1.3). */
bool stream_end_is_busy(int status);
/* Neither a refusal nor a failure: connections come and go. */
bool stream_end_is_plain_end(int status);
/* HTTP/2's ENHANCE_YOUR_CALM, or a GOAWAY that ends streams: the whole connection suffers. */
bool stream_end_did_harm(const char *why);
/* pilot-agent's label: "cancelled" or "error" (istio-agent.md 1.8). */
const char *stream_end_kind(int status, const char *why);
